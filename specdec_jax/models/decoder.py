"""The decoder's parameters and its forward pass, declared with flax nnx."""

import functools
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from specdec_jax.models import attention, kv_cache, rope
from specdec_jax.models.config import ModelConfig
from specdec_jax.models.matrix import (
  DType,
  Ints,
  Linear,
  Matrix,
  Types,
  along_last,
  param,
)
from specdec_jax.types import LOG_ZERO, Array

_ACTIVATIONS: Mapping[str, Callable[[Array], Array]] = {
  "silu": jax.nn.silu,
  "gelu": functools.partial(jax.nn.gelu, approximate=False),
  "gelu_tanh": functools.partial(jax.nn.gelu, approximate=True),
  "relu": jax.nn.relu,
}


class Norm(nnx.Module):
  """Norm over the last axis, in float32: by root mean square, or LayerNorm."""

  def __init__(self, axis: str, size: int, config: ModelConfig, dtype: DType):
    self.scale = param((size,), (axis,), dtype)
    self.bias = param((size,), (axis,), dtype) if config.layer_norm else None
    self.offset = config.norm_offset
    self.eps = config.norm_eps

  def __call__(self, x: Array) -> Array:
    wide = x.astype(jnp.float32)
    if self.bias is not None:
      wide -= jnp.mean(wide, axis=-1, keepdims=True)
    mean = jnp.mean(jnp.square(wide), axis=-1, keepdims=True)
    wide *= lax.rsqrt(mean + self.eps)
    wide *= along_last(self.scale, x.ndim) + self.offset
    if self.bias is not None:
      wide += along_last(self.bias, x.ndim)
    return wide.astype(x.dtype)


def _same(x: Array) -> Array:
  return x


class Attention(nnx.Module):
  """Grouped-query attention over a cache."""

  def __init__(self, config: ModelConfig, layer: int, types: Types):
    d, h = config.hidden_size, config.head_dim
    n, m = config.num_heads, config.num_kv_heads
    bias = config.qkv_bias

    def kv() -> Linear:
      shape, units = (m * h, d), (m, d)
      return Linear(("kv_heads", "embed"), shape, units, bias, types)

    def norm() -> Norm | None:
      if not config.qk_norm:
        return None
      return Norm("head_dim", h, config, types.dtype)

    self.head_dim = h
    self.scale = config.query_scalar**-0.5
    self.cap = config.score_cap
    self.window = config.window_of(layer)
    self.query = Linear(("heads", "embed"), (n * h, d), (n, d), bias, types)
    self.key = kv()
    self.value = kv()
    self.out = Linear(
      ("embed", "heads"), (d, n * h), (d, n), config.out_bias, types
    )
    self.query_norm = norm()
    self.key_norm = norm()

  def __call__(
    self,
    x_BTD: Array,
    position_BT: Array,
    angles: rope.Angles | None,
    past: attention.Span | None,
    upcast: bool,
  ) -> tuple[Array, kv_cache.LayerCache]:
    """The mixed values, and keys and values of these tokens `[B, M, T, H]`."""
    split = (*x_BTD.shape[:2], -1, self.head_dim)
    query_BTNH = self.query(x_BTD).reshape(split)
    key_BTMH = self.key(x_BTD).reshape(split)
    value_BTMH = self.value(x_BTD).reshape(split)
    if self.query_norm is not None and self.key_norm is not None:
      query_BTNH = self.query_norm(query_BTNH)
      key_BTMH = self.key_norm(key_BTMH)
    if angles is not None:
      query_BTNH = rope.rotate(query_BTNH, *angles)
      key_BTMH = rope.rotate(key_BTMH, *angles)
    # What is not finite is left to the key alone: masks hide keys, while a
    # masked value is still multiplied, and 0 * NaN would spoil every query.
    sound_BTM1 = jnp.isfinite(value_BTMH).all(axis=-1, keepdims=True)
    key_BTMH = jnp.where(sound_BTM1, key_BTMH, jnp.nan)
    value_BTMH = jnp.where(sound_BTM1, value_BTMH, 0)
    new = key_BTMH.swapaxes(1, 2), value_BTMH.swapaxes(1, 2)
    present = attention.Span(*new, position_BT)
    mixed_BTD = attention.attend(
      query_BTNH,
      [present] if past is None else [past, present],
      position_BT,
      scale=self.scale,
      cap=self.cap,
      window=self.window,
      upcast=upcast,
    )
    return self.out(mixed_BTD), new


class MLP(nnx.Module):
  """Two layers, or three where the first has a gate."""

  def __init__(self, config: ModelConfig, types: Types):
    d, f, bias = config.hidden_size, config.mlp_size, config.mlp_bias
    self.activation = _ACTIVATIONS[config.activation]

    def wide() -> Linear:
      return Linear(("mlp", "embed"), (f, d), (f, d), bias, types)

    self.gate = wide() if config.gated_mlp else None
    self.up = wide()
    self.down = Linear(("embed", "mlp"), (d, f), (d, f), bias, types)

  def __call__(self, x_BTD: Array) -> Array:
    up = self.up(x_BTD)
    if self.gate is None:
      return self.down(self.activation(up))
    return self.down(self.activation(self.gate(x_BTD)) * up)


class Layer(nnx.Module):
  """Attention and mlp, each normalised before, and after in some families."""

  def __init__(self, config: ModelConfig, layer: int, types: Types):
    def norm() -> Norm:
      return Norm("embed", config.hidden_size, config, types.dtype)

    self.attention_norm = norm()
    self.attention = Attention(config, layer, types)
    self.after_attention = norm() if config.post_norms else _same
    self.mlp_norm = norm()
    self.mlp = MLP(config, types)
    self.after_mlp = norm() if config.post_norms else _same

  def __call__(
    self,
    x_BTD: Array,
    position_BT: Array,
    angles: rope.Angles | None,
    past: attention.Span | None,
    upcast: bool,
  ) -> tuple[Array, kv_cache.LayerCache]:
    mixed_BTD, new = self.attention(
      self.attention_norm(x_BTD), position_BT, angles, past, upcast
    )
    x_BTD = x_BTD + self.after_attention(mixed_BTD)
    return x_BTD + self.after_mlp(self.mlp(self.mlp_norm(x_BTD))), new


class Table(Matrix):
  """Rows to look up: embeddings, positions, or the head."""

  def __init__(self, axis: str, rows: int, config: ModelConfig, types: Types):
    shape = (rows, config.hidden_size)
    super().__init__((axis, "embed"), shape, shape, types)

  def __call__(self, row_BT: Array) -> Array:
    # mode="clip": the default fills rows of foreign ids with NaN.
    take = functools.partial(jnp.take, indices=row_BT, axis=0, mode="clip")
    x_BTD = take(self.weight.get_value())
    if self.weight_scale is None:
      return x_BTD
    scale_BT1 = take(self.weight_scale.get_value())[..., None]
    return (x_BTD * scale_BT1).astype(self.types.dtype)


class Decoder(nnx.Module):
  """The whole model, from tokens to the input of the head."""

  def __init__(self, config: ModelConfig, types: Types):
    self.config = config

    def tokens(rows: int) -> Table:
      return Table("vocab", rows, config, types)

    self.embed = tokens(config.vocab_size)
    self.positions = (
      Table("slots", config.max_length, config, Types(types.dtype))
      if config.rope_theta is None
      else None
    )
    self.layers = nnx.List(
      [Layer(config, layer, types) for layer in range(config.num_layers)]
    )
    self.final_norm = Norm("embed", config.hidden_size, config, types.dtype)
    self.head = (
      None
      if config.tied
      else tokens(config.draft_vocab_size or config.vocab_size)
    )
    # The token of each row of the head, in rising order. Copies lie on all
    # devices, and so does the head where its rows do not divide over them.
    self.draft_vocab_ids = (
      param((config.draft_vocab_size,), ("draft_vocab",), jnp.int32)
      if config.draft_vocab_size
      else None
    )

  def __call__(
    self,
    tokens_BT: Array,
    start_B: Array,
    cache: kv_cache.Cache | None,
    taps: Ints,
    upcast: bool,
  ) -> tuple[Array, Array, kv_cache.Cache | None]:
    """See `types.Network.forward`; `upcast` as in `attention.attend`."""
    position_BT = start_B[:, None] + jnp.arange(tokens_BT.shape[1])[None]
    x_BTD = self.embed(tokens_BT)
    if self.config.scaled_embed:
      # A number of the weights' type: sqrt(3072) is 55.5 in bfloat16.
      x_BTD *= jnp.asarray(self.config.hidden_size**0.5, x_BTD.dtype)
    if self.positions is not None:
      x_BTD += self.positions(position_BT)
    angles = self._angles(position_BT)
    slots = cache[0][0].shape[2] if cache else 0
    valid_BS = kv_cache.valid(slots, start_B)
    new: list[kv_cache.LayerCache] = []
    seen: dict[int, Array] = {}
    for i, layer in enumerate(self.layers):
      local = self.config.window_of(i) > 0
      past = attention.Span(*cache[i], valid_BS) if cache else None
      x_BTD, layer_new = layer(x_BTD, position_BT, angles[local], past, upcast)
      new.append(layer_new)
      if i in taps:
        seen[i] = x_BTD
    tapped_BTF = jnp.concatenate(
      [seen[i] for i in taps] or [x_BTD[..., :0]], axis=-1
    )
    if cache:
      # Only when all layers have read: XLA for TPU would bring each layer's
      # cache to the chip to read and write it there, and take all of it back;
      # XLA for CPU would copy it. The barrier keeps the one from it. The other
      # takes barriers out too early: for it the places depend on what was read.
      x_BTD, new = lax.optimization_barrier((x_BTD, new))
      late_BT = jnp.minimum(position_BT, 2**30 + (x_BTD[..., 0] > 0))
      cache = kv_cache.extend(cache, new, late_BT)
    return self.final_norm(x_BTD), tapped_BTF, cache

  def _angles(self, position_BT: Array) -> tuple[rope.Angles | None, ...]:
    """Rotations in layers that see everything, and in those that do not."""
    config = self.config
    if config.rope_theta is None:
      return None, None
    full = rope.angles(
      position_BT, config.head_dim, config.rope_theta, config.rope_scaling
    )
    if config.local_rope_theta is None:
      return full, full
    local = rope.angles(
      position_BT, config.head_dim, config.local_rope_theta, None
    )
    return full, local

  def logits(self, hidden_BTD: Array) -> Array:
    """Logits over the vocabulary, float32 `[B, T, V]`.

    A head of some tokens only (FR-Spec, Zhao et al., arXiv 2502.14856) gives
    `LOG_ZERO` to the others: probability 0, exactly.
    """
    table = self.embed if self.head is None else self.head
    logits_BTV = table.product(hidden_BTD, jnp.float32)
    logits_BTV = attention.soft_cap(logits_BTV, self.config.logit_cap)
    if self.draft_vocab_ids is not None:
      # On a CPU this is cheaper than to gather by an inverse index of V, and
      # its gradient is a gather of N.
      shape = (*logits_BTV.shape[:-1], self.config.vocab_size)
      return (
        jnp.full(shape, LOG_ZERO)
        .at[..., self.draft_vocab_ids.get_value()]
        .set(logits_BTV, unique_indices=True, indices_are_sorted=True)
      )
    if self.config.known_rows < self.config.vocab_size:
      token_11V = jnp.arange(self.config.vocab_size)[None, None]
      known_11V = token_11V < self.config.known_rows
      logits_BTV = jnp.where(known_11V, logits_BTV, LOG_ZERO)
    return logits_BTV
