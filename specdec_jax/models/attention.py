"""Causal attention of a few query tokens over a cache and over each other."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from specdec_jax.types import LOG_ZERO, Array


def soft_cap(x: Array, cap: float | None) -> Array:
  """Bounds numbers smoothly by a cap; leaves them alone if it is None."""
  return x if cap is None else cap * jnp.tanh(x / cap)


class Span(NamedTuple):
  """Keys and values, and the tokens that they are of.

  Attributes:
    key_BMSH: keys, rotated.
    value_BMSH: values.
    position_BS: position of each token; one past any query hides it.
  """

  key_BMSH: Array
  value_BMSH: Array
  position_BS: Array


def attend(
  query_BTNH: Array,
  spans: Sequence[Span],
  position_BT: Array,
  *,
  scale: float,
  cap: float | None,
  window: int,
  upcast: bool,
) -> Array:
  """Attends from each token to the newest ones up to itself.

  Query heads of one key-value head are folded into its rows: keys and values
  are not repeated, and the products are plain batched ones.

  Args:
    query_BTNH: queries, rotated.
    spans: what is attended to, the queries' own tokens among it.
    position_BT: position of each query.
    scale: what the products of queries and keys are multiplied by.
    cap: bound of the scores, see `soft_cap`.
    window: how many tokens a query sees, its own included; 0 for all.
    upcast: multiply in float32. XLA on CPU has no bfloat16 product over a
      batch, and its float32 one is faster than what replaces it.

  Returns:
    Mixed values `[B, T, N * H]` in the type of the queries.
  """
  batch, tokens, heads, width = query_BTNH.shape
  kv_heads = spans[0].key_BMSH.shape[1]
  group = heads // kv_heads
  dtype = query_BTNH.dtype
  if upcast:
    query_BTNH, spans = _wide(query_BTNH), [Span(*map(_wide, s)) for s in spans]
  query = query_BTNH.reshape(batch, tokens, kv_heads, group, width)
  query_BMQH = query.transpose(0, 2, 3, 1, 4).reshape(
    batch, kv_heads, group * tokens, width
  )

  def score(span: Span) -> Array:
    score_BMQS = jnp.einsum(
      "BMQH,BMSH->BMQS",
      query_BMQH,
      span.key_BMSH,
      preferred_element_type=jnp.float32,
    )
    score_BMQS = soft_cap(score_BMQS * scale, cap)
    age_BTS = position_BT[..., None] - span.position_BS[:, None]
    seen_BTS = age_BTS >= 0
    if window:
      seen_BTS &= age_BTS < window
    score = score_BMQS.reshape(batch, kv_heads, group, tokens, -1)
    score = jnp.where(seen_BTS[:, None, None], score, LOG_ZERO)
    return score.reshape(score_BMQS.shape)

  scores = [score(span) for span in spans]
  highest_BMQ1 = functools.reduce(
    jnp.maximum, [score.max(axis=-1, keepdims=True) for score in scores]
  )
  total_BMQ1 = jnp.zeros_like(highest_BMQ1)
  mixed_BMQH = jnp.zeros(query_BMQH.shape, jnp.float32)
  for score_BMQS, span in zip(scores, spans, strict=True):
    weight_BMQS = jnp.exp(score_BMQS - lax.stop_gradient(highest_BMQ1))
    # Made once, in the narrow type: a chip of two cores keeps no product on the
    # chip, and would read the scores once for the sum and once for the values.
    weight_BMQS = lax.optimization_barrier(
      weight_BMQS.astype(span.value_BMSH.dtype)
    )
    total_BMQ1 += weight_BMQS.astype(jnp.float32).sum(axis=-1, keepdims=True)
    mixed_BMQH += jnp.einsum(
      "BMQS,BMSH->BMQH",
      weight_BMQS,
      span.value_BMSH,
      preferred_element_type=jnp.float32,
    )
  mixed = mixed_BMQH / total_BMQ1
  mixed = mixed.reshape(batch, kv_heads, group, tokens, width)
  mixed = mixed.transpose(0, 3, 1, 2, 4).reshape(batch, tokens, heads * width)
  return mixed.astype(dtype)


def _wide(x: Array) -> Array:
  return x.astype(jnp.float32) if x.dtype == jnp.bfloat16 else x
