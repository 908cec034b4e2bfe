"""Models as shapes: what a config.json says, and not a single weight."""

import dataclasses
import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from specdec_jax import buckets, sharding
from specdec_jax import state as state_lib
from specdec_jax.acceptance import BlockRule
from specdec_jax.drafters import DraftModel
from specdec_jax.loading import embedded, hf
from specdec_jax.loading.source import read_json
from specdec_jax.models import config as config_lib
from specdec_jax.models.config import ModelConfig
from specdec_jax.models.language_model import LanguageModel
from specdec_jax.models.transformer import Params, TransformerNetwork
from specdec_jax.state import DecodeState, Engine, Weights, init_state
from specdec_jax.types import PyTree

_CONFIG = "config.json"


def read_config(source: str) -> ModelConfig:
  """Reads the shape of a model.

  Args:
    source: a folder with a config.json, such a file, the id of a model on the
      Hugging Face hub, of which nothing else is downloaded, or one of the pair
      that comes with the package, "embedded:pycode/target".

  Raises:
    ValueError: there is none, or it is of a model that is not supported.
  """
  if source.startswith(embedded.PREFIX):
    path = embedded.folder(source) / _CONFIG
  else:
    path = Path(source).expanduser()
    if not path.is_file():
      folder = path if path.is_dir() else hf.download(source, (_CONFIG,))
      path = folder / _CONFIG
  fields = read_json(path)
  if fields.get("quantization_config"):
    raise ValueError(f"{source} is quantised; name the original model instead")
  return config_lib.from_hf(fields)


def model(
  config: ModelConfig,
  name: str,
  dtype: str,
  quantize: str | None,
  mesh: Any,
  layout: str,
) -> LanguageModel:
  """A model whose weights are shapes that know where they would lie."""
  size = config.vocab_size
  config = config.with_vocab(size, sharding.vocab_rows(size, mesh))
  network = TransformerNetwork(config, dtype, "tpu", quantize)
  network = network.laid_out(layout, mesh)
  params: Params = {
    path: jax.ShapeDtypeStruct(
      info.shape,
      np.dtype(info.dtype),
      sharding=NamedSharding(mesh, info.spec(mesh)),
    )
    for path, info in network.param_infos().items()
  }
  return LanguageModel(network, params, None, (), mesh, name)


@dataclasses.dataclass(frozen=True)
class Pair:
  """All arguments of a generation, as shapes.

  Attributes:
    target: the target.
    draft: the draft.
    engine: what the program is compiled for.
    bucket: rows and slots.
    weights: of both.
    state: the rows.
  """

  target: LanguageModel
  draft: LanguageModel
  engine: Engine
  bucket: buckets.Bucket
  weights: Weights
  state: DecodeState

  @classmethod
  def of(
    cls,
    target: ModelConfig,
    draft: ModelConfig,
    mesh: Any,
    *,
    batch_size: int,
    context_length: int,
    num_draft_tokens: int,
    dtype: str,
    quantize: str | None,
    draft_layout: str,
  ) -> "Pair":
    """The arguments on a mesh, as a generation makes them.

    Raises:
      ValueError: the two do not go together, or a value is out of its range.
    """
    ours = model(target, "target", dtype, quantize, mesh, "model")
    theirs = model(draft, "draft", dtype, quantize, mesh, draft_layout)
    drafter, draft_weights = (
      DraftModel(theirs, num_draft_tokens).bind(ours).split()
    )
    engine = Engine(ours.network, drafter, BlockRule())
    bucket = buckets.Bucket.of(
      batch_size, context_length, engine, sharding.sizes(mesh)[sharding.DATA]
    )
    packer = buckets.Packer(ours.network.vocab_size, (), False, None)
    shapes = jax.eval_shape(
      functools.partial(init_state, engine, False, False),
      packer.pack([], bucket),
    )
    places = state_lib.shardings(engine, mesh, shapes)
    return cls(
      target=ours,
      draft=theirs,
      engine=engine,
      bucket=bucket,
      weights=Weights(
        ours.params,
        jax.tree.map(lambda leaf: everywhere(mesh, leaf), draft_weights),
      ),
      state=jax.tree.map(_placed, shapes, places),
    )


def everywhere(mesh: Any, leaf: Any) -> Any:
  """A value of the host as a shape, of which each device has a copy."""
  if isinstance(leaf, jax.ShapeDtypeStruct):
    return leaf
  where = NamedSharding(mesh, PartitionSpec())
  return jax.ShapeDtypeStruct(np.shape(leaf), leaf.dtype, sharding=where)


def _placed(leaf: PyTree, where: NamedSharding) -> jax.ShapeDtypeStruct:
  return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where)


def shardings(tree: PyTree) -> PyTree:
  """Where each leaf lies."""
  return jax.tree.map(lambda leaf: leaf.sharding, tree)


def bytes_of(tree: PyTree) -> int:
  """Bytes that each device holds of these arrays."""
  return sum(
    int(np.prod(leaf.sharding.shard_shape(leaf.shape))) * leaf.dtype.itemsize
    for leaf in jax.tree.leaves(tree)
  )


def rows(pair: Pair, tokens: int) -> tuple[Any, Any]:
  """Tokens `[B, T]` and positions `[B]` of a pass, where rows lie."""
  batch, mesh = pair.bucket.batch, pair.target.mesh
  where = NamedSharding(mesh, sharding.batch_spec(batch, mesh))
  tokens_BT = jax.ShapeDtypeStruct((batch, tokens), jnp.int32, sharding=where)
  start_B = jax.ShapeDtypeStruct((batch,), jnp.int32, sharding=where)
  return tokens_BT, start_B
