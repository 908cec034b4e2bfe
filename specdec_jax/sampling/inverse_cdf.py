"""From a law to a token."""

import jax.numpy as jnp

from specdec_jax.sharding import VOCAB_TILE, gather
from specdec_jax.types import Array


def draw(weight_BTV: Array, uniform_BT2: Array) -> Array:
  """Draws a token from each law, in proportion to its weights, `[B, T]`.

  Inverse of the cumulative distribution in two levels: the first uniform picks
  a block of tokens, the second a token in it. That takes one pass over the
  vocabulary instead of a cumulative sum over it, and tokens far less probable
  than the 2**-23 steps of a single uniform keep their probability. A token of
  weight 0 is never drawn.
  """
  *_, vocab_size = weight_BTV.shape
  # Devices that split a vocabulary have whole blocks of it.
  width = min(VOCAB_TILE, vocab_size)
  padding = -vocab_size % width
  weight = jnp.pad(weight_BTV, ((0, 0), (0, 0), (0, padding)))
  weight = weight.reshape(*weight.shape[:2], -1, width)
  block_BT = _invert(gather(weight.sum(axis=-1)), uniform_BT2[..., 0])
  inside = jnp.take_along_axis(weight, block_BT[..., None, None], axis=2)
  token_BT = _invert(gather(inside[..., 0, :]), uniform_BT2[..., 1])
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
