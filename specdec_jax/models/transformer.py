"""A decoder as a network: static, with its weights as an argument.

flax nnx declares the parameters, once; after that a model is a static
`TransformerNetwork` and a plain dictionary of arrays from a dotted path,
`layers.3.mlp.up.weight`, to the weight. Nothing of nnx lives in a decode loop.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from specdec_jax import quantize as int8
from specdec_jax import sharding
from specdec_jax.models import kv_cache
from specdec_jax.models.config import ModelConfig
from specdec_jax.models.decoder import Decoder
from specdec_jax.models.matrix import Types
from specdec_jax.types import Array, PyTree

Params = dict[str, Any]

DTYPES = ("float32", "bfloat16")
QUANTIZED = ("int8",)


@dataclasses.dataclass(frozen=True)
class ParamInfo:
  """What is known of a parameter before it is loaded.

  Attributes:
    shape: its shape.
    axes: the logical axis of each dimension; None is not split.
    units: into how many pieces each dimension may be cut.
    dtype: the network's, "int32" for token ids, or "int8" and "float32" for
      what is quantised and its scales.
  """

  shape: tuple[int, ...]
  axes: tuple[str | None, ...]
  units: tuple[int, ...]
  dtype: str

  @property
  def bytes(self) -> int:
    """What it takes, wherever it lies."""
    return int(np.prod(self.shape)) * np.dtype(self.dtype).itemsize

  def spec(self, mesh: jax.sharding.Mesh) -> jax.sharding.PartitionSpec:
    """Where it lives on a mesh."""
    return sharding.param_spec(self.axes, self.units, mesh)


@dataclasses.dataclass(frozen=True)
class TransformerNetwork:
  """A decoder without its weights; implements `types.Network`.

  Attributes:
    config: the shape of the model.
    dtype: of weights, activations and cache: "float32" or "bfloat16". Norms,
      RoPE, softmax and logits are float32 in both.
    platform: where it runs, "cpu" or "tpu"; the process's default if None.
    quantize: "int8" if matrices and embeddings are quantised, see `quantize`;
      norms, biases and learned positions are not.
    split: whether its weights and caches are split over the mesh's `model`
      axis, or each device has all of them.
  """

  config: ModelConfig
  dtype: str = "bfloat16"
  platform: str | None = None
  quantize: str | None = None
  split: bool = True

  def __post_init__(self) -> None:
    self.check_dtype(self.dtype)
    self.check_quantize(self.quantize)

  @staticmethod
  def check_dtype(dtype: str) -> None:
    """Raises ValueError for a dtype that is not supported."""
    if dtype not in DTYPES:
      raise ValueError(
        f"dtype {dtype!r} is not supported; supported: {', '.join(DTYPES)}"
      )

  @staticmethod
  def check_quantize(quantize: str | None) -> None:
    """Raises ValueError for a quantisation that is not supported."""
    if quantize is not None and quantize not in QUANTIZED:
      raise ValueError(
        f"quantize {quantize!r} is not supported; supported: "
        f"{', '.join(QUANTIZED)}, or None for weights as they are"
      )

  @property
  def vocab_size(self) -> int:
    return self.config.vocab_size

  @property
  def max_length(self) -> int:
    return self.config.max_length

  @property
  def min_rows(self) -> int:
    # XLA on CPU: a bfloat16 product of one row is 12 to 25 times slower than
    # of two; in float32, in which int8 matrices are multiplied there, one row
    # is as fast or faster.
    narrow = self.dtype == "bfloat16" and self.quantize is None
    return 2 if self._on_cpu and narrow else 1

  @property
  def _on_cpu(self) -> bool:
    return (self.platform or jax.default_backend()) == "cpu"

  @property
  def _types(self) -> Types:
    quantized = self.quantize is not None
    return Types(jnp.dtype(self.dtype), quantized, quantized and self._on_cpu)

  def param_infos(self) -> dict[str, ParamInfo]:
    """The parameters that `forward` expects, by dotted path."""
    infos = _declare(self.config, self._types)[1]
    if self.split:
      return dict(infos)
    return {
      path: dataclasses.replace(info, axes=(None,) * len(info.axes))
      for path, info in infos.items()
    }

  @property
  def cache_axes(self) -> tuple[str | None, ...]:
    return sharding.SPLIT_CACHE if self.split else sharding.WHOLE_CACHE

  def laid_out(
    self, layout: str, mesh: jax.sharding.Mesh | jax.sharding.AbstractMesh
  ) -> "TransformerNetwork":
    """This network, split over the mesh or not; see `sharding.is_split`."""
    weight_bytes = sum(info.bytes for info in self.param_infos().values())
    split = sharding.is_split(
      layout, weight_bytes, self.config.num_layers, mesh
    )
    return dataclasses.replace(self, split=split)

  def init_cache(self, batch: int, slots: int) -> PyTree:
    """An empty cache, a tuple over layers of `[B, M, S, H]` pairs."""
    return kv_cache.init(
      self.config.num_layers,
      batch,
      self.config.num_kv_heads,
      slots,
      self.config.head_dim,
      self.dtype,
    )

  def forward(
    self,
    params: PyTree,
    tokens_BT: Array,
    start_B: Array,
    cache: PyTree,
    taps: tuple[int, ...] = (),
  ) -> tuple[Array, Array, PyTree]:
    """Runs T tokens of each row; see `types.Network.forward`.

    Whole texts may be run without a cache, as training does: start_B is 0 then
    and `cache` None.
    """
    foreign = [i for i in taps if not 0 <= i < self.config.num_layers]
    if foreign:
      raise ValueError(
        f"taps {foreign} are no layers; there are {self.config.num_layers}"
      )
    return self._decoder(params)(tokens_BT, start_B, cache, taps, self._on_cpu)

  def head(self, params: PyTree, hidden_BTD: Array) -> Array:
    """Logits over the vocabulary, float32 `[B, T, V]`."""
    return self._decoder(params).logits(hidden_BTD)

  def _decoder(self, params: Params) -> Decoder:
    graphdef, _ = _declare(self.config, self._types)
    tree: dict[Any, Any] = {}
    for path, value in params.items():
      *parents, name = path.split(".")
      node = tree
      for parent in parents:
        key = int(parent) if parent.isdecimal() else parent
        node = node.setdefault(key, {})
      node[name] = value
    return nnx.merge(graphdef, tree)


@functools.lru_cache(maxsize=64)
def _declare(
  config: ModelConfig, types: Types
) -> tuple[nnx.GraphDef, dict[str, ParamInfo]]:
  """Declares a decoder without making any array."""
  decoder = nnx.eval_shape(lambda: Decoder(config, types))
  graphdef, state = nnx.split(decoder)
  infos = {}
  for path, variable in nnx.to_flat_state(state):
    metadata = variable.get_metadata()
    infos[".".join(map(str, path))] = ParamInfo(
      tuple(variable.shape),
      metadata["axes"],
      metadata["units"],
      np.dtype(variable.dtype).name,
    )
  return graphdef, infos


def random_params(
  network: TransformerNetwork, seed: int, scale: float = 2.0
) -> Params:
  """Random weights, for tests: the same for the same seed, everywhere.

  Args:
    network: what to make weights for.
    seed: any non-negative integer.
    scale: of the products' outputs; the logits' standard deviation is about
      this, so that the laws are neither flat nor one-hot.
  """
  params = {}
  plain = dataclasses.replace(network, quantize=None)
  for i, (path, info) in enumerate(sorted(plain.param_infos().items())):
    noise = np.random.default_rng((seed, i)).standard_normal(info.shape)
    if path.endswith(".scale"):
      value = 1 - network.config.norm_offset + 0.1 * noise
    elif path.endswith(".bias"):
      value = 0.1 * scale * noise
    else:
      value = scale * noise / np.sqrt(info.shape[-1])
    params[path] = jnp.asarray(value, network.dtype)
  return quantized(network, params)


def quantized(network: TransformerNetwork, params: Params) -> Params:
  """Weights as the network keeps them, given those of one without `quantize`.

  Args:
    network: what the weights are for.
    params: its weights, by path; nothing in them is quantised.
  """
  infos = network.param_infos()
  kept = dict(params)
  for path, value in params.items():
    if infos[path].dtype == "int8":
      q_OI, scale_O = int8.quantize(np.asarray(value))
      kept[path] = jnp.asarray(q_OI)
      kept[path + int8.SCALE] = jnp.asarray(scale_O)
  return kept
