"""From wherever a model is stored onto a mesh."""

import dataclasses
import functools
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tqdm

from specdec_jax import quantize as int8
from specdec_jax import sharding
from specdec_jax.loading import embedded, gguf, hf, orbax, tokenizer
from specdec_jax.loading.checkpoint import Checkpoint, Tensor
from specdec_jax.loading.int8_rows import Bounds, Int8Rows
from specdec_jax.loading.source import Source, from_folder
from specdec_jax.models import config as config_lib
from specdec_jax.models.fields import short
from specdec_jax.models.language_model import LanguageModel
from specdec_jax.models.transformer import (
  ParamInfo,
  Params,
  TransformerNetwork,
)

_SAMPLING = (
  "do_sample",
  "temperature",
  "top_k",
  "top_p",
  "min_p",
  "repetition_penalty",
)


def load(
  source: str | Path,
  *,
  dtype: str = "bfloat16",
  quantize: str | None = None,
  mesh: jax.sharding.Mesh | None = None,
  layout: str = "model",
  progress: bool = True,
) -> LanguageModel:
  """Loads a model, its tokenizer and its weights.

  Each device reads the slices that it holds; there is no second copy of the
  weights on the host.

  Args:
    source: a folder with a Hugging Face or an orbax checkpoint, a .gguf file,
      the id of a model on the Hugging Face hub, or one of the pair that comes
      with the package, "embedded:pycode/target" and "embedded:pycode/draft".
    dtype: "bfloat16" or "float32", of weights and activations.
    quantize: "int8" keeps matrices and embeddings in 8 bits, half the memory of
      bfloat16. That makes it another model, see `quantize`: speculative
      decoding is then exact with respect to the quantised target.
    mesh: where the model lives, see `sharding.make_mesh`; the first device if
      None.
    layout: what its `model` axis does to the weights: "model" splits them,
      "replicated" gives all of them to each device, as may suit a small draft,
      and "auto" does what takes a pass on a TPU less time.
    progress: whether to show a progress bar, if stderr is a terminal.

  Raises:
    ValueError: what is not supported, not there or broken. All faults of
      config.json are told at once; where there are none, all faults of the
      tensors.
  """
  mesh = sharding.make_mesh() if mesh is None else mesh
  # Refuses a wrong value before anything is downloaded.
  make_network = _network_maker(dtype, quantize, mesh)
  sharding.check_layout(layout)
  stored = open_source(source)
  config = config_lib.from_hf(stored.fields)
  check(stored.weights, TransformerNetwork(config, dtype), config)
  reader = stored.read_tokenizer()
  vocab = config.vocab_size if reader is None else reader.size
  # Some tokens that were added later may lack a row, but not most of them.
  if vocab > 2 * config.vocab_size:
    raise ValueError(
      f"the tokenizer of {source} has ids up to {vocab - 1}, but the model "
      f"knows {config.vocab_size} tokens: they do not belong together"
    )
  network = make_network(
    config.with_vocab(vocab, sharding.vocab_rows(vocab, mesh))
  ).laid_out(layout, mesh)
  generation = stored.generation
  return LanguageModel(
    network=network,
    params=_read(stored.weights, network, mesh, stored.name, progress),
    tokenizer=reader,
    eos_ids=_eos_ids(generation, stored.fields, reader, vocab),
    mesh=mesh,
    name=stored.name,
    generation_config={k: generation[k] for k in _SAMPLING if k in generation},
  )


def open_source(source: str | Path) -> Source:
  """Finds out what a model is stored as, and reads what is small.

  Raises:
    ValueError: there is no model, or its files are broken.
  """
  if isinstance(source, str) and source.startswith(embedded.PREFIX):
    return from_folder(embedded.folder(source), source, hf.open_folder)
  try:
    path = Path(source).expanduser()
    is_folder, is_file = path.is_dir(), path.is_file()
  except (OSError, RuntimeError) as error:  # too long, closed, no such user
    reason = getattr(error, "strerror", None) or error
    raise ValueError(f"no such folder: {source}: {reason}") from error
  name = str(source)
  if is_file:
    return gguf.open_file(path, name)
  if not (is_folder and name):
    if isinstance(source, Path):
      raise ValueError(f"no such folder: {source}")
    path = hf.download(name)
  is_orbax = (path / orbax.FOLDER).is_dir()
  return from_folder(
    path, name, orbax.OrbaxArrays if is_orbax else hf.open_folder
  )


def _network_maker(
  dtype: str, quantize: str | None, mesh: jax.sharding.Mesh
) -> Callable[[config_lib.ModelConfig], TransformerNetwork]:
  TransformerNetwork.check_dtype(dtype)
  TransformerNetwork.check_quantize(quantize)
  platform = mesh.devices.flat[0].platform
  return lambda config: TransformerNetwork(config, dtype, platform, quantize)


def check(
  files: Checkpoint,
  network: TransformerNetwork,
  config: config_lib.ModelConfig,
) -> dict[str, Tensor]:
  """Compares the headers with the network, before the vocabulary is cut.

  Returns:
    The tensors that the network needs, in its own types, by name.

  Raises:
    ValueError: all faults at once.
  """
  # Declaring layers takes time; each has several tensors.
  if config.num_layers > len(files.tensors):
    raise ValueError(
      f"config.json: num_hidden_layers is {config.num_layers}, but the "
      f"checkpoint has {len(files.tensors)} tensors only"
    )
  family = config.family
  infos = network.param_infos()
  places = family.stored(_shapes(network), files.tensors)
  expected = {
    place.name: Tensor(place.shape, infos[path].dtype)
    for path, place in places.items()
  }
  ignored = family.ignored
  if config.tied:
    ignored += (family.tensor_name("head.weight"),)
  files.check(expected, ignored)
  if config.draft_vocab_size:
    _check_draft_vocab(files, config)
  return expected


def _check_draft_vocab(
  files: Checkpoint, config: config_lib.ModelConfig
) -> None:
  """Each row of a limited head must be of another token, in rising order."""
  name = config.family.tensor_name("draft_vocab_ids")
  whole = (slice(0, config.draft_vocab_size),)
  id_N = files.read(name, whole, "int32")
  # Of the rows of the embedding: a tokenizer may know fewer of them.
  bounds_N = np.concatenate([[-1], id_N, [config.vocab_size]])
  if (np.diff(bounds_N) < 1).any():
    raise ValueError(
      f"{name}: expected {len(id_N)} different tokens in rising order, all "
      f"below {config.vocab_size}, got {short(id_N.tolist())}"
    )


def _shapes(network: TransformerNetwork) -> dict[str, tuple[int, ...]]:
  return {path: info.shape for path, info in network.param_infos().items()}


def _read(
  files: Checkpoint,
  network: TransformerNetwork,
  mesh: jax.sharding.Mesh,
  name: str,
  progress: bool,
) -> Params:
  """Reads all weights onto the mesh."""
  infos = network.param_infos()
  stored = dataclasses.replace(network, quantize=None)
  places = network.config.family.stored(_shapes(stored), files.tensors)
  params = {}
  with tqdm.tqdm(
    total=sum(info.bytes for info in infos.values()),
    desc=f"Loading {name}",
    unit="B",
    unit_scale=True,
    disable=not (progress and sys.stderr.isatty()),
    file=sys.stderr,
  ) as bar:
    # Largest first: what a tensor takes while it is copied comes on top of what
    # is there already.
    for path in sorted(
      places, key=lambda path: infos[path].bytes, reverse=True
    ):
      dtype, place = infos[path].dtype, places[path]

      def read(bounds, dtype=dtype, place=place):
        part = files.read(place.name, place.index(bounds), dtype)
        return part.T if place.transposed else part

      readers: dict[str, Callable[[Bounds], np.ndarray]] = {path: read}
      if dtype == "int8":
        columns = infos[path].shape[1]
        rows = Int8Rows(functools.partial(read, dtype="float32"), columns)
        readers = {path: rows.weight, path + int8.SCALE: rows.scale}
      for made, reader in readers.items():
        params[made] = _place(infos[made], mesh, reader)
        bar.update(infos[made].bytes)
  return params


def _place(
  info: ParamInfo,
  mesh: jax.sharding.Mesh,
  read: Callable[[Bounds], np.ndarray],
) -> jax.Array:
  """A parameter on the mesh, of the parts that are read for each device."""

  def part(index):
    return read(
      tuple(
        slice(*s.indices(n)[:2]) for s, n in zip(index, info.shape, strict=True)
      )
    )

  where = jax.sharding.NamedSharding(mesh, info.spec(mesh))
  array = jax.make_array_from_callback(info.shape, where, part)
  return array.block_until_ready()


def _eos_ids(
  generation: Mapping[str, Any],
  fields: Mapping[str, Any],
  reader: tokenizer.Tokenizer | None,
  vocab: int,
) -> tuple[int, ...]:
  """The tokens that end a sequence: the first source that names any."""
  sources = (
    generation.get("eos_token_id"),
    fields.get("eos_token_id"),
    None if reader is None else list(reader.eos_ids),
  )
  for ids in sources:
    ids = ids if isinstance(ids, list) else [ids]
    valid = [i for i in ids if type(i) is int and 0 <= i < vocab]
    if valid:
      return tuple(dict.fromkeys(valid))
  return ()
