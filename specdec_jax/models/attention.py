"""Causal attention of a few query tokens over a cache."""

import jax
import jax.numpy as jnp

from specdec_jax.types import LOG_ZERO, Array


def soft_cap(x: Array, cap: float | None) -> Array:
  """Bounds numbers smoothly by a cap; leaves them alone if it is None."""
  return x if cap is None else cap * jnp.tanh(x / cap)


def attend(
  query_BTNH: Array,
  key_BMSH: Array,
  value_BMSH: Array,
  position_BT: Array,
  *,
  scale: float,
  cap: float | None,
  window: int,
  upcast: bool,
) -> Array:
  """Attends from each token to the newest slots up to its own position.

  Query heads of one key-value head are folded into its rows: keys and values
  are not repeated, and the products are plain batched ones.

  Args:
    query_BTNH: queries, rotated.
    key_BMSH: keys, the T new ones included.
    value_BMSH: values, likewise.
    position_BT: position of each query.
    scale: what the products of queries and keys are multiplied by.
    cap: bound of the scores, see `soft_cap`.
    window: how many slots a query sees, its own included; 0 for all.
    upcast: multiply in float32. XLA on CPU has no bfloat16 product over a
      batch, and its float32 one is faster than what replaces it.

  Returns:
    Mixed values `[B, T, N * H]` in the type of the queries.
  """
  batch, tokens, heads, width = query_BTNH.shape
  kv_heads, slots = key_BMSH.shape[1:3]
  group = heads // kv_heads
  dtype = query_BTNH.dtype
  if upcast:
    key_BMSH = key_BMSH.astype(jnp.float32)
    value_BMSH = value_BMSH.astype(jnp.float32)
  query = query_BTNH.reshape(batch, tokens, kv_heads, group, width)
  query_BMQH = (
    query.transpose(0, 2, 3, 1, 4)
    .reshape(batch, kv_heads, group * tokens, width)
    .astype(key_BMSH.dtype)
  )
  score_BMQS = jnp.einsum(
    "BMQH,BMSH->BMQS",
    query_BMQH,
    key_BMSH,
    preferred_element_type=jnp.float32,
  )
  score_BMQS = soft_cap(score_BMQS * scale, cap)
  age_BTS = position_BT[..., None] - jnp.arange(slots)[None, None]
  seen_BTS = age_BTS >= 0
  if window:
    seen_BTS &= age_BTS < window
  score = score_BMQS.reshape(batch, kv_heads, group, tokens, slots)
  score = jnp.where(seen_BTS[:, None, None], score, LOG_ZERO)
  weight_BMQS = jax.nn.softmax(score, axis=-1).reshape(score_BMQS.shape)
  mixed_BMQH = jnp.einsum(
    "BMQS,BMSH->BMQH",
    weight_BMQS.astype(value_BMSH.dtype),
    value_BMSH,
    preferred_element_type=jnp.float32,
  )
  mixed = mixed_BMQH.reshape(batch, kv_heads, group, tokens, width)
  mixed = mixed.transpose(0, 3, 1, 2, 4).reshape(batch, tokens, heads * width)
  return mixed.astype(dtype)
