"""The decoder's parameters and its forward pass, declared with flax nnx.

Each parameter says which logical axes it has; `sharding.RULES` say where those
lie. Weights are `[out, in]`, as checkpoints store them: loading is a plain
copy, and it is the layout of XLA's fast bfloat16 products on CPU.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from specdec_jax.models import attention, kv_cache, rope
from specdec_jax.models.config import ModelConfig
from specdec_jax.types import Array

Ints = tuple[int, ...]
Names = tuple[str, ...]
DType = Any

_ACTIVATIONS: Mapping[str, Callable[[Array], Array]] = {
  "silu": jax.nn.silu,
  "gelu": functools.partial(jax.nn.gelu, approximate=False),
  "gelu_tanh": functools.partial(jax.nn.gelu, approximate=True),
  "relu": jax.nn.relu,
}


def _param(
  shape: Ints, axes: Names, dtype: DType, units: Ints | None = None
) -> nnx.Param:
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

  def __init__(
    self, axes: Names, shape: Ints, units: Ints, bias: bool, dtype: DType
  ):
    self.weight = _param(shape, axes, dtype, units)
    self.bias = _param(shape[:1], axes[:1], dtype, units[:1]) if bias else None

  def __call__(self, x: Array) -> Array:
    y = jnp.einsum("...i,oi->...o", x, self.weight.get_value())
    if self.bias is None:
      return y
    return y + jnp.expand_dims(self.bias.get_value(), range(y.ndim - 1))


class RMSNorm(nnx.Module):
  """Root mean square norm over the last axis, in float32."""

  def __init__(self, axis: str, size: int, eps: float, dtype: DType):
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

  def __init__(self, config: ModelConfig, dtype: DType):
    d, h = config.hidden_size, config.head_dim
    n, m = config.num_heads, config.num_kv_heads
    bias, eps = config.qkv_bias, config.rms_norm_eps

    def kv() -> Linear:
      shape, units = (m * h, d), (m, d)
      return Linear(("kv_heads", "embed"), shape, units, bias, dtype)

    def norm() -> RMSNorm | None:
      return RMSNorm("head_dim", h, eps, dtype) if config.qk_norm else None

    self.head_dim = h
    self.query = Linear(("heads", "embed"), (n * h, d), (n, d), bias, dtype)
    self.key = kv()
    self.value = kv()
    self.out = Linear(
      ("embed", "heads"), (d, n * h), (d, n), config.out_bias, dtype
    )
    self.query_norm = norm()
    self.key_norm = norm()

  def __call__(
    self,
    x_BTD: Array,
    position_BT: Array,
    angles: tuple[Array, Array],
    cache: kv_cache.LayerCache,
    upcast: bool,
  ) -> tuple[Array, kv_cache.LayerCache]:
    split = (*x_BTD.shape[:2], -1, self.head_dim)
    query_BTNH = self.query(x_BTD).reshape(split)
    key_BTMH = self.key(x_BTD).reshape(split)
    value_BTMH = self.value(x_BTD).reshape(split)
    if self.query_norm is not None and self.key_norm is not None:
      query_BTNH = self.query_norm(query_BTNH)
      key_BTMH = self.key_norm(key_BTMH)
    query_BTNH = rope.rotate(query_BTNH, *angles)
    key_BTMH = rope.rotate(key_BTMH, *angles)
    # What is not finite is left to the key alone: masks hide keys, while a
    # masked value is still multiplied, and 0 * NaN would spoil every query.
    sound_BTM1 = jnp.isfinite(value_BTMH).all(axis=-1, keepdims=True)
    key_BTMH = jnp.where(sound_BTM1, key_BTMH, jnp.nan)
    value_BTMH = jnp.where(sound_BTM1, value_BTMH, 0)
    key_BMSH = kv_cache.write(cache[0], key_BTMH, position_BT)
    value_BMSH = kv_cache.write(cache[1], value_BTMH, position_BT)
    mixed_BTD = attention.attend(
      query_BTNH, key_BMSH, value_BMSH, position_BT, upcast
    )
    return self.out(mixed_BTD), (key_BMSH, value_BMSH)


class MLP(nnx.Module):
  """Gated mlp."""

  def __init__(self, config: ModelConfig, dtype: DType):
    d, f, bias = config.hidden_size, config.mlp_size, config.mlp_bias
    self.activation = _ACTIVATIONS[config.activation]
    self.gate = Linear(("mlp", "embed"), (f, d), (f, d), bias, dtype)
    self.up = Linear(("mlp", "embed"), (f, d), (f, d), bias, dtype)
    self.down = Linear(("embed", "mlp"), (d, f), (d, f), bias, dtype)

  def __call__(self, x_BTD: Array) -> Array:
    return self.down(self.activation(self.gate(x_BTD)) * self.up(x_BTD))


class Layer(nnx.Module):
  """One pre-norm layer."""

  def __init__(self, config: ModelConfig, dtype: DType):
    d, eps = config.hidden_size, config.rms_norm_eps
    self.attention_norm = RMSNorm("embed", d, eps, dtype)
    self.attention = Attention(config, dtype)
    self.mlp_norm = RMSNorm("embed", d, eps, dtype)
    self.mlp = MLP(config, dtype)

  def __call__(
    self,
    x_BTD: Array,
    position_BT: Array,
    angles: tuple[Array, Array],
    cache: kv_cache.LayerCache,
    upcast: bool,
  ) -> tuple[Array, kv_cache.LayerCache]:
    mixed, cache = self.attention(
      self.attention_norm(x_BTD), position_BT, angles, cache, upcast
    )
    x_BTD = x_BTD + mixed
    return x_BTD + self.mlp(self.mlp_norm(x_BTD)), cache


class Table(nnx.Module):
  """A row for each token: the embedding, or the head."""

  def __init__(self, config: ModelConfig, dtype: DType):
    shape = (config.stored_rows, config.hidden_size)
    self.weight = _param(shape, ("vocab", "embed"), dtype)


class Decoder(nnx.Module):
  """The whole model, from tokens to the input of the head."""

  def __init__(self, config: ModelConfig, dtype: DType):
    self.config = config
    self.embed = Table(config, dtype)
    self.layers = nnx.List(
      [Layer(config, dtype) for _ in range(config.num_layers)]
    )
    self.final_norm = RMSNorm(
      "embed", config.hidden_size, config.rms_norm_eps, dtype
    )
    self.head = None if config.tied else Table(config, dtype)

  def __call__(
    self,
    tokens_BT: Array,
    start_B: Array,
    cache: kv_cache.Cache,
    taps: Ints,
    upcast: bool,
  ) -> tuple[Array, Array, kv_cache.Cache]:
    """See `types.Network.forward`; `upcast` as in `attention.attend`."""
    position_BT = start_B[:, None] + jnp.arange(tokens_BT.shape[1])[None]
    angles = rope.angles(self.config, position_BT)
    # mode="clip": the default fills rows of foreign ids with NaN.
    x_BTD = jnp.take(
      self.embed.weight.get_value(), tokens_BT, axis=0, mode="clip"
    )
    caches: list[kv_cache.LayerCache] = []
    seen: dict[int, Array] = {}
    for i, layer in enumerate(self.layers):
      x_BTD, layer_cache = layer(x_BTD, position_BT, angles, cache[i], upcast)
      caches.append(layer_cache)
      if i in taps:
        seen[i] = x_BTD
    tapped_BTF = jnp.concatenate(
      [seen[i] for i in taps] or [x_BTD[..., :0]], axis=-1
    )
    return self.final_norm(x_BTD), tapped_BTF, tuple(caches)

  def logits(self, hidden_BTD: Array) -> Array:
    """Logits over the vocabulary, float32 `[B, T, V]`."""
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
