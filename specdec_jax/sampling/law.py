"""From logits to a law."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import DTypeLike

from specdec_jax.sampling.controls import Controls
from specdec_jax.sampling.params import SamplingParams
from specdec_jax.types import LOG_ZERO, Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Law:
  """SamplingParams of a batch.

  Attributes:
    temperature_B: float32; 0 is greedy.
    top_k_B: int32; 0 keeps all.
    top_p_B: float32; 1 keeps all.
    min_p_B: float32; 0 keeps all.
    controls: what is about single tokens; None where no row uses any of it.
  """

  temperature_B: Array
  top_k_B: Array
  top_p_B: Array
  min_p_B: Array
  controls: Controls | None = None

  @classmethod
  def of(
    cls,
    params: Sequence[SamplingParams],
    lengths: Sequence[int],
    vocab_size: int | None,
  ) -> Self:
    """The law of a batch, arrays of numpy.

    Args:
      params: of each row.
      lengths: of the prompts.
      vocab_size: V, for controls; None leaves them out.
    """

    def column(name: str, dtype: DTypeLike) -> Any:
      return np.array([getattr(p, name) for p in params], dtype)

    return cls(
      temperature_B=column("temperature", np.float32),
      top_k_B=column("top_k", np.int32),
      top_p_B=column("top_p", np.float32),
      min_p_B=column("min_p", np.float32),
      controls=None
      if vocab_size is None
      else Controls.of(params, lengths, vocab_size),
    )


def log_probs(logits_BTV: Array, law: Law) -> Array:
  """The log-probabilities of each row's law, float32 `[B, T, V]`.

  Logits of LOG_ZERO or less are no tokens, at any temperature. They are the
  model's as `Controls.adjust` has left them, where there are controls. Rows of
  temperature 0 have a one-hot law, on the first of the largest logits. Tokens
  of probability 0 have LOG_ZERO or less.
  """
  greedy_B11 = law.temperature_B[:, None, None] == 0
  temperature_B11 = jnp.where(greedy_B11, 1, law.temperature_B[:, None, None])
  logits_BTV = logits_BTV.astype(jnp.float32)
  scaled_BTV = jnp.where(
    logits_BTV > LOG_ZERO, logits_BTV / temperature_B11, LOG_ZERO
  )
  scaled_BTV = jnp.where(
    _kept(scaled_BTV, law, greedy_B11[..., 0]), scaled_BTV, LOG_ZERO
  )
  best_BT = jnp.argmax(logits_BTV, axis=-1)
  token_11V = jnp.arange(logits_BTV.shape[-1])[None, None]
  one_hot_BTV = jnp.where(token_11V == best_BT[..., None], 0.0, LOG_ZERO)
  return jnp.where(
    greedy_B11, one_hot_BTV, jax.nn.log_softmax(scaled_BTV, axis=-1)
  )


def _kept(scaled_BTV: Array, law: Law, greedy_B1: Array) -> Array:
  """Which tokens top-k, then top-p, then min-p keep."""
  top_k_B1 = jnp.where(
    (law.top_k_B[:, None] > 0) & ~greedy_B1,
    law.top_k_B[:, None].astype(jnp.float32),
    jnp.inf,
  )
  top_p_B1 = jnp.where(
    (law.top_p_B[:, None] < 1) & ~greedy_B1, law.top_p_B[:, None], jnp.inf
  )
  everything = jnp.full(scaled_BTV.shape[:2], -jnp.inf)

  def top_k():
    count_B1 = jnp.broadcast_to(top_k_B1, scaled_BTV.shape[:2])
    return _threshold(scaled_BTV, jnp.ones_like(scaled_BTV), count_B1)

  def top_p(least_BT):
    weight_BTV = jnp.exp(scaled_BTV - scaled_BTV.max(axis=-1, keepdims=True))
    weight_BTV = jnp.where(scaled_BTV >= least_BT[..., None], weight_BTV, 0)
    return jnp.maximum(
      least_BT,
      _threshold(scaled_BTV, weight_BTV, top_p_B1 * weight_BTV.sum(axis=-1)),
    )

  # Conditions on values, not on the program: a batch that uses neither filter
  # does not pay for them, and nothing is compiled again when the next one does.
  least_BT = lax.cond(
    jnp.any(jnp.isfinite(top_k_B1)), top_k, lambda: everything
  )
  least_BT = lax.cond(
    jnp.any(jnp.isfinite(top_p_B1)), top_p, lambda least: least, least_BT
  )
  min_p_BT = scaled_BTV.max(axis=-1) + jnp.log(law.min_p_B)[:, None]
  return scaled_BTV >= jnp.maximum(least_BT, min_p_BT)[..., None]


def _threshold(value_BTV: Array, weight_BTV: Array, budget_BT: Array) -> Array:
  """The least value that still belongs to the top, `[B, T]`.

  A token belongs to the top while the tokens of greater value weigh less than
  the budget. With weights 1 and budget k this is top-k, with probabilities
  and budget p it is top-p. Found by bisection over the bit patterns of the
  values, exactly and in 32 passes: a sort of a large vocabulary takes 40 to
  60 times as long on a CPU.
  """
  key_BTV = _ordered(value_BTV)

  def halve(_, bounds):
    low, high = bounds
    middle = (low & high) + ((low ^ high) >> 1)  # the mean, without overflow
    above = jnp.where(key_BTV > middle[..., None], weight_BTV, 0).sum(axis=-1)
    fits = above < budget_BT
    return jnp.where(fits, low, middle + 1), jnp.where(fits, middle, high)

  bounds = (key_BTV.min(axis=-1), key_BTV.max(axis=-1))
  _, key_BT = lax.fori_loop(0, 32, halve, bounds)
  return _unordered(key_BT)


def _ordered(value: Array) -> Array:
  """Integers in the order of the given float32 numbers."""
  bits = lax.bitcast_convert_type(value + 0.0, jnp.int32)  # no -0.0
  return jnp.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


def _unordered(key: Array) -> Array:
  bits = jnp.where(key < 0, key ^ 0x7FFFFFFF, key)
  return lax.bitcast_convert_type(bits, jnp.float32)
