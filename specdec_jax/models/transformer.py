"""One decoder for every family.

flax nnx declares the parameters, once; after that a model is a static
`TransformerNetwork` and a plain dictionary of arrays from a dotted path,
`layers.3.mlp.up.weight`, to the weight. Nothing of nnx lives in a decode loop.

Weights are `[out, in]`, as checkpoints store them: loading is a plain copy,
and it is the layout of XLA's fast bfloat16 products on CPU.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from specdec_jax import sharding
from specdec_jax.models import attention, kv_cache, rope
from specdec_jax.models.config import ModelConfig
from specdec_jax.types import Array, PyTree

Params = dict[str, Any]

DTYPES = ("float32", "bfloat16")

_ACTIVATIONS = {
  "silu": jax.nn.silu,
  "gelu": functools.partial(jax.nn.gelu, approximate=False),
  "gelu_tanh": functools.partial(jax.nn.gelu, approximate=True),
  "relu": jax.nn.relu,
}


def _param(shape, axes, dtype, units=None) -> nnx.Param:
  """Declares a parameter.

  Args:
    shape: its shape.
    axes: the logical axis of each dimension, see `sharding.RULES`.
    dtype: its type.
    units: into how many pieces each dimension may be cut; its size if None.
  """
  return nnx.Param(jnp.zeros(shape, dtype), axes=axes, units=units or shape)


class Linear(nnx.Module):
  """y = W x + b, W stored `[out, in]`."""

  def __init__(self, axes, shape, units, bias, dtype):
    self.weight = _param(shape, axes, dtype, units)
    self.bias = (
      _param(shape[:1], axes[:1], dtype, units[:1]) if bias else None
    )

  def __call__(self, x: Array) -> Array:
    y = jnp.einsum("...i,oi->...o", x, self.weight.get_value())
    if self.bias is None:
      return y
    return y + jnp.expand_dims(self.bias.get_value(), range(y.ndim - 1))


class RMSNorm(nnx.Module):
  """Root mean square norm over the last axis, in float32."""

  def __init__(self, axis, size, eps, dtype):
    self.scale = _param((size,), (axis,), dtype)
    self.eps = eps

  def __call__(self, x: Array) -> Array:
    wide = x.astype(jnp.float32)
    mean = jnp.mean(jnp.square(wide), axis=-1, keepdims=True)
    wide = wide * jax.lax.rsqrt(mean + self.eps)
    scale = self.scale.get_value().astype(jnp.float32)
    return (wide * jnp.expand_dims(scale, range(x.ndim - 1))).astype(x.dtype)


class Attention(nnx.Module):
  """Grouped-query attention over a cache."""

  def __init__(self, config: ModelConfig, dtype):
    d, h = config.hidden_size, config.head_dim
    n, m = config.num_heads, config.num_kv_heads
    self.config = config
    bias = config.qkv_bias
    kv = (("kv_heads", "embed"), (m * h, d), (m, d), bias, dtype)
    self.query = Linear(("heads", "embed"), (n * h, d), (n, d), bias, dtype)
    self.key = Linear(*kv)
    self.value = Linear(*kv)
    self.out = Linear(
      ("embed", "heads"), (d, n * h), (d, n), config.out_bias, dtype
    )
    norm = ("head_dim", h, config.rms_norm_eps, dtype)
    self.query_norm = RMSNorm(*norm) if config.qk_norm else None
    self.key_norm = RMSNorm(*norm) if config.qk_norm else None

  def __call__(
    self,
    x_BTD: Array,
    position_BT: Array,
    angles: tuple[Array, Array],
    cache: kv_cache.LayerCache,
    upcast: bool,
  ) -> tuple[Array, kv_cache.LayerCache]:
    split = (*x_BTD.shape[:2], -1, self.config.head_dim)
    query_BTNH = self.query(x_BTD).reshape(split)
    key_BTMH = self.key(x_BTD).reshape(split)
    value_BTMH = self.value(x_BTD).reshape(split)
    if self.query_norm is not None and self.key_norm is not None:
      query_BTNH = self.query_norm(query_BTNH)
      key_BTMH = self.key_norm(key_BTMH)
    query_BTNH = rope.rotate(query_BTNH, *angles)
    key_BTMH = rope.rotate(key_BTMH, *angles)
    key_BMSH = kv_cache.write(cache[0], key_BTMH, position_BT)
    value_BMSH = kv_cache.write(cache[1], value_BTMH, position_BT)
    mixed_BTD = attention.attend(
      query_BTNH, key_BMSH, value_BMSH, position_BT, upcast
    )
    return self.out(mixed_BTD), (key_BMSH, value_BMSH)


class MLP(nnx.Module):
  """Gated mlp."""

  def __init__(self, config: ModelConfig, dtype):
    d, f, bias = config.hidden_size, config.mlp_size, config.mlp_bias
    wide = (("mlp", "embed"), (f, d), (f, d), bias, dtype)
    self.activation = config.activation
    self.gate = Linear(*wide)
    self.up = Linear(*wide)
    self.down = Linear(("embed", "mlp"), (d, f), (d, f), bias, dtype)

  def __call__(self, x_BTD: Array) -> Array:
    gate_BTF = _ACTIVATIONS[self.activation](self.gate(x_BTD))
    return self.down(gate_BTF * self.up(x_BTD))


class Layer(nnx.Module):
  """One pre-norm layer."""

  def __init__(self, config: ModelConfig, dtype):
    norm = ("embed", config.hidden_size, config.rms_norm_eps, dtype)
    self.attention_norm = RMSNorm(*norm)
    self.attention = Attention(config, dtype)
    self.mlp_norm = RMSNorm(*norm)
    self.mlp = MLP(config, dtype)

  def __call__(self, x_BTD, position_BT, angles, cache, upcast):
    mixed, cache = self.attention(
      self.attention_norm(x_BTD), position_BT, angles, cache, upcast
    )
    x_BTD = x_BTD + mixed
    return x_BTD + self.mlp(self.mlp_norm(x_BTD)), cache


class Table(nnx.Module):
  """A row for each token: the embedding, or the head."""

  def __init__(self, config: ModelConfig, dtype):
    shape = (config.stored_rows, config.hidden_size)
    self.weight = _param(shape, ("vocab", "embed"), dtype)


class Decoder(nnx.Module):
  """The whole model, from tokens to the input of the head."""

  def __init__(self, config: ModelConfig, dtype):
    self.config = config
    self.embed = Table(config, dtype)
    self.layers = nnx.List(
      [Layer(config, dtype) for _ in range(config.num_layers)]
    )
    self.final_norm = RMSNorm(
      "embed", config.hidden_size, config.rms_norm_eps, dtype
    )
    self.head = None if config.tied else Table(config, dtype)

  def __call__(self, tokens_BT, start_B, cache, taps, upcast):
    position_BT = start_B[:, None] + jnp.arange(tokens_BT.shape[1])[None]
    angles = rope.angles(self.config, position_BT)
    # mode="clip": the default fills rows of foreign ids with NaN.
    x_BTD = jnp.take(
      self.embed.weight.get_value(), tokens_BT, axis=0, mode="clip"
    )
    caches, seen = [], {}
    for i, layer in enumerate(self.layers):
      x_BTD, layer_cache = layer(x_BTD, position_BT, angles, cache[i], upcast)
      caches.append(layer_cache)
      if i in taps:
        seen[i] = x_BTD
    tapped_BTF = jnp.concatenate(
      [seen[i] for i in taps] or [x_BTD[..., :0]], axis=-1
    )
    return self.final_norm(x_BTD), tapped_BTF, tuple(caches)

  def logits(self, hidden_BTD):
    table = self.embed if self.head is None else self.head
    logits_BTV = jnp.einsum(
      "...d,vd->...v",
      hidden_BTD,
      table.weight.get_value(),
      preferred_element_type=jnp.float32,
    )[..., : self.config.vocab_size]
    if self.config.known_rows < self.config.vocab_size:
      token_11V = jnp.arange(self.config.vocab_size)[None, None]
      known_11V = token_11V < self.config.known_rows
      logits_BTV = jnp.where(known_11V, logits_BTV, attention.MASKED)
    return logits_BTV


@dataclasses.dataclass(frozen=True)
class ParamInfo:
  """What is known of a parameter before it is loaded.

  Attributes:
    shape: its shape.
    axes: the logical axis of each dimension.
    units: into how many pieces each dimension may be cut.
  """

  shape: tuple[int, ...]
  axes: tuple[str, ...]
  units: tuple[int, ...]

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
  """

  config: ModelConfig
  dtype: str = "bfloat16"
  platform: str | None = None

  def __post_init__(self):
    self.check_dtype(self.dtype)

  @staticmethod
  def check_dtype(dtype: str) -> None:
    """Raises ValueError for a dtype that is not supported."""
    if dtype not in DTYPES:
      raise ValueError(
        f"dtype {dtype!r} is not supported; supported: {', '.join(DTYPES)}"
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
    # of two; in float32 one row is as fast or faster.
    return 2 if self._on_cpu and self.dtype == "bfloat16" else 1

  @property
  def _on_cpu(self) -> bool:
    return (self.platform or jax.default_backend()) == "cpu"

  def param_infos(self) -> dict[str, ParamInfo]:
    """The parameters that `forward` expects, by dotted path."""
    return dict(_declare(self.config, self.dtype)[1])

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
    """Runs T tokens of each row; see `types.Network.forward`."""
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
    graphdef, _ = _declare(self.config, self.dtype)
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
  config: ModelConfig, dtype: str
) -> tuple[nnx.GraphDef, dict[str, ParamInfo]]:
  """Declares a decoder without making any array."""
  decoder = nnx.eval_shape(lambda: Decoder(config, jnp.dtype(dtype)))
  graphdef, state = nnx.split(decoder)
  infos = {}
  for path, variable in nnx.to_flat_state(state):
    metadata = variable.get_metadata()
    infos[".".join(map(str, path))] = ParamInfo(
      tuple(variable.shape), metadata["axes"], metadata["units"]
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
  for i, (path, info) in enumerate(sorted(network.param_infos().items())):
    noise = np.random.default_rng((seed, i)).standard_normal(info.shape)
    if path.endswith(".scale"):
      value = 1 + 0.1 * noise
    elif path.endswith(".bias"):
      value = 0.1 * scale * noise
    else:
      value = scale * noise / np.sqrt(info.shape[-1])
    params[path] = jnp.asarray(value, network.dtype)
  return params
