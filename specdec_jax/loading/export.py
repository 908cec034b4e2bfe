"""Writes a model as a folder that `load` and others read."""

import contextlib
import dataclasses
import json
import math
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tqdm

from specdec_jax.loading import loader, orbax
from specdec_jax.loading.checkpoint import Tensor
from specdec_jax.loading.source import Source
from specdec_jax.models import config as config_lib
from specdec_jax.models.transformer import TransformerNetwork

# What formats call the types that are kept as they are.
_KEPT = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_INTEGER = "int32"  # of token ids, whatever type the weights have
_SAFETENSORS = {ours: theirs for theirs, ours in _KEPT.items()} | {
  _INTEGER: "I32"
}


@dataclasses.dataclass(frozen=True)
class Exported:
  """What was written.

  Attributes:
    tensors: how many tensors.
    size: their bytes.
    dtype: the type of weights.
  """

  tensors: int
  size: int
  dtype: str


def export(
  source: Source,
  folder: Path,
  *,
  form: str = "safetensors",
  dtype: str | None = None,
  max_shard_bytes: int = 5 * 10**9,
  progress: bool = True,
) -> Exported:
  """Writes config.json, tokenizer, generation_config.json and weights.

  Args:
    source: the model.
    folder: must not be there yet, or be empty.
    form: "safetensors", tensor by tensor, or "orbax", which holds all weights
      in memory meanwhile.
    dtype: of the weights; None keeps what the largest tensor has, or takes
      bfloat16 where that is quantised.
    max_shard_bytes: the most bytes of tensors in a safetensors file; a larger
      tensor has a file of its own.
    progress: whether to show a progress bar, if stderr is a terminal.

  Raises:
    ValueError: the folder is in use, or the model broken or not supported.
    OSError: it cannot be written.
  """
  check_unused(folder)
  config = config_lib.from_hf(source.fields)
  needed = loader.check(source.weights, TransformerNetwork(config), config)
  if dtype is None:
    largest = max(needed, key=lambda name: math.prod(needed[name].shape))
    stored = source.weights.tensors[largest].dtype
    stored = _KEPT.get(stored, stored)
    dtype = stored if stored in _SAFETENSORS else "bfloat16"
  reader = source.read_tokenizer()
  written = {
    name: Tensor(t.shape, t.dtype if t.dtype == _INTEGER else dtype)
    for name, t in needed.items()
  }
  sizes = {
    name: math.prod(tensor.shape) * np.dtype(tensor.dtype).itemsize
    for name, tensor in written.items()
  }
  with _made_at_once(folder) as partial:
    tensors = _read(source, written, sizes, progress)
    if form == "orbax":
      orbax.save(partial, dict(tensors))
    else:
      _write_files(partial, tensors, written, sizes, max_shard_bytes)
    if reader is not None:
      reader.save(partial)
    if source.generation:
      _write_json(partial / "generation_config.json", source.generation)
    fields = {k: v for k, v in source.fields.items() if k != "torch_dtype"}
    # Last: without it the folder is no model.
    _write_json(partial / "config.json", fields | {"dtype": dtype})
  return Exported(len(written), sum(sizes.values()), dtype)


def check_unused(folder: Path) -> None:
  """Raises ValueError unless the folder is new or empty."""
  if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
    raise ValueError(f"{folder} is in use; expected a new or an empty folder")


@contextlib.contextmanager
def _made_at_once(folder: Path) -> Iterator[Path]:
  """A folder beside this one, which takes its name at the end, or vanishes."""
  folder = folder.resolve()
  partial = folder.with_name(f"{folder.name}.partial-{os.getpid()}")
  partial.mkdir(parents=True)
  try:
    yield partial
    partial.rename(folder)
  finally:
    shutil.rmtree(partial, ignore_errors=True)


def _read(
  source: Source,
  written: Mapping[str, Tensor],
  sizes: Mapping[str, int],
  progress: bool,
) -> Iterator[tuple[str, np.ndarray]]:
  """The tensors, one after the other."""
  with tqdm.tqdm(
    total=sum(sizes.values()),
    desc=f"Converting {source.name}",
    unit="B",
    unit_scale=True,
    disable=not (progress and sys.stderr.isatty()),
    file=sys.stderr,
  ) as bar:
    for name, tensor in written.items():
      whole = tuple(slice(0, size) for size in tensor.shape)
      yield name, source.weights.read(name, whole, tensor.dtype)
      bar.update(sizes[name])


def _write_files(
  folder: Path,
  tensors: Iterator[tuple[str, np.ndarray]],
  written: Mapping[str, Tensor],
  sizes: Mapping[str, int],
  max_bytes: int,
) -> None:
  """Writes safetensors files, and their index where there are several."""
  shards: list[list[str]] = [[]]
  filled = 0
  for name, size in sizes.items():
    if shards[-1] and filled + size > max_bytes:
      shards.append([])
      filled = 0
    shards[-1].append(name)
    filled += size
  count = len(shards)
  places: dict[str, str] = {}
  for i, names in enumerate(shards, 1):
    file = f"model-{i:05}-of-{count:05}.safetensors"
    file = file if count > 1 else "model.safetensors"
    places |= dict.fromkeys(names, file)
    _write_file(folder / file, tensors, names, written, sizes)
  if count > 1:
    index = {
      "metadata": {"total_size": sum(sizes.values())},
      "weight_map": places,
    }
    _write_json(folder / "model.safetensors.index.json", index)


def _write_file(
  path: Path,
  tensors: Iterator[tuple[str, np.ndarray]],
  names: Iterable[str],
  written: Mapping[str, Tensor],
  sizes: Mapping[str, int],
) -> None:
  """Writes the next tensors, these, without holding more than one of them.

  https://github.com/huggingface/safetensors#format
  """
  header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
  end = 0
  for name in names:
    begin, end = end, end + sizes[name]
    header[name] = {
      "dtype": _SAFETENSORS[written[name].dtype],
      "shape": written[name].shape,
      "data_offsets": [begin, end],
    }
  text = json.dumps(header).encode()
  text += b" " * (-len(text) % 8)  # tensors are aligned
  with path.open("wb") as file:
    file.write(len(text).to_bytes(8, "little") + text)
    for _ in header.keys() - {"__metadata__"}:
      _, array = next(tensors)
      file.write(np.ascontiguousarray(array).view(np.uint8))


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
  path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
