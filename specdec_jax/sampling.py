"""From logits to a law, and from a law to a token.

The only place where temperature, top-k, top-p and min-p live. Plain decoding,
every drafter and every acceptance rule call `log_probs`: two readings of the
same parameters would be two laws, and the output would follow neither.
"""

import dataclasses
import numbers

import jax
import jax.numpy as jnp
from jax import lax

from specdec_jax.types import Array

# The logarithm of probability zero: finite, so that differences, cumulative
# sums and products with zero stay numbers; its exponential is exactly 0.
LOG_ZERO = -1e30

# Logits divided by less could leave the range of float32.
_LEAST_TEMPERATURE, _GREATEST_TEMPERATURE = 1e-5, 1e30


@dataclasses.dataclass(frozen=True)
class SamplingParams:
  """How the tokens of one prompt are drawn.

  The law of a token is built in this order: temperature, top-k, top-p, min-p,
  renormalise.

  Attributes:
    temperature: divides the logits; 0 picks the most probable token. No
      less than 1e-5 otherwise.
    top_k: keep the k most probable tokens, and any that tie with the last of
      them; 0 keeps all.
    top_p: keep the most probable tokens up to a total probability of at least
      top_p, and any that tie with the last of them; in (0, 1].
    min_p: keep tokens of at least min_p times the largest probability; in
      [0, 1].
    seed: of this prompt's random numbers, in [0, 2**32).
    max_new_tokens: the most tokens to generate; None leaves it to the call.
    logprobs: whether to report each token's log-probability under the
      target's raw logits.

  Raises:
    ValueError: a value lies outside its range.
  """

  temperature: float = 0.0
  top_k: int = 0
  top_p: float = 1.0
  min_p: float = 0.0
  seed: int = 0
  max_new_tokens: int | None = None
  logprobs: bool = False

  def __post_init__(self) -> None:
    def check(name: str, ok: bool, expected: str) -> None:
      if not ok:
        value = getattr(self, name)
        raise ValueError(f"{name}: expected {expected}, got {value!r}")

    for name in ("temperature", "top_p", "min_p"):
      check(name, isinstance(getattr(self, name), numbers.Real), "a number")
    # The comparisons are written so that NaN fails them.
    check(
      "temperature",
      self.temperature == 0
      or _LEAST_TEMPERATURE <= self.temperature <= _GREATEST_TEMPERATURE,
      f"0 (greedy) or a number in [{_LEAST_TEMPERATURE}, "
      f"{_GREATEST_TEMPERATURE}]",
    )
    check(
      "top_k",
      is_integer(self.top_k) and 0 <= self.top_k < 2**31,
      "an integer of at least 0 (0 keeps all tokens)",
    )
    check(
      "top_p",
      0 < self.top_p <= 1,
      "a number in (0, 1] (1 keeps all tokens; for greedy decoding set "
      "temperature to 0)",
    )
    check("min_p", 0 <= self.min_p <= 1, "a number in [0, 1]")
    check(
      "seed",
      is_integer(self.seed) and 0 <= self.seed < 2**32,
      "an integer in [0, 2**32)",
    )
    check(
      "max_new_tokens",
      self.max_new_tokens is None
      or (is_integer(self.max_new_tokens) and self.max_new_tokens >= 1),
      "an integer of at least 1",
    )


def is_integer(value: object) -> bool:
  """Whether this is a whole number, Python's or numpy's, and no truth value."""
  return isinstance(value, numbers.Integral) and not isinstance(value, bool)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Law:
  """SamplingParams of a batch.

  Attributes:
    temperature_B: float32; 0 is greedy.
    top_k_B: int32; 0 keeps all.
    top_p_B: float32; 1 keeps all.
    min_p_B: float32; 0 keeps all.
  """

  temperature_B: Array
  top_k_B: Array
  top_p_B: Array
  min_p_B: Array


def log_probs(logits_BTV: Array, law: Law) -> Array:
  """The log-probabilities of each row's law, float32 `[B, T, V]`.

  Rows of temperature 0 have a one-hot law, on the first of the largest logits.
  Tokens of probability 0 have LOG_ZERO or less.
  """
  greedy_B11 = law.temperature_B[:, None, None] == 0
  temperature_B11 = jnp.where(greedy_B11, 1, law.temperature_B[:, None, None])
  scaled_BTV = logits_BTV.astype(jnp.float32) / temperature_B11
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


_BLOCK = 512


def draw(weight_BTV: Array, uniform_BT2: Array) -> Array:
  """Draws a token from each law, in proportion to its weights, `[B, T]`.

  Inverse of the cumulative distribution in two levels: the first uniform picks
  a block of tokens, the second a token in it. That takes one pass over the
  vocabulary instead of a cumulative sum over it, and tokens far less probable
  than the 2**-23 steps of a single uniform keep their probability. A token of
  weight 0 is never drawn.
  """
  *_, vocab_size = weight_BTV.shape
  width = min(_BLOCK, vocab_size)
  padding = -vocab_size % width
  weight = jnp.pad(weight_BTV, ((0, 0), (0, 0), (0, padding)))
  weight = weight.reshape(*weight.shape[:2], -1, width)
  block_BT = _invert(weight.sum(axis=-1), uniform_BT2[..., 0])
  inside = jnp.take_along_axis(weight, block_BT[..., None, None], axis=2)
  token_BT = _invert(inside[..., 0, :], uniform_BT2[..., 1])
  return block_BT * width + token_BT


def _invert(weight: Array, uniform: Array) -> Array:
  """The first index whose cumulative weight exceeds uniform * total."""
  cumulative = jnp.cumsum(weight, axis=-1)
  positive = weight > 0
  # Parallel sums need not be monotone to the last bit: an index of weight 0
  # is excluded by name, and past the end the last positive one is taken.
  beyond = cumulative > uniform[..., None] * cumulative[..., -1:]
  found = positive & beyond
  last = weight.shape[-1] - 1 - jnp.argmax(positive[..., ::-1], axis=-1)
  return jnp.where(found.any(axis=-1), jnp.argmax(found, axis=-1), last)
