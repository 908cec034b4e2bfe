"""What changes the logits of single tokens: penalties, biases, bans.

Some of it depends on what was written before a position, drafts included. So
each position of a block has logits of its own, as it would in plain decoding.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from specdec_jax.sampling.params import SamplingParams
from specdec_jax.types import LOG_ZERO, Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Controls:
  """The part of SamplingParams that is about single tokens, of a batch.

  Attributes:
    repetition_B: divides positive and multiplies negative logits of tokens
      that prompt or text hold (CTRL, Keskar et al., arXiv 1909.05858); 1 does
      nothing.
    presence_B: subtracted from the logits of tokens that the text holds.
    frequency_B: subtracted as often as the text holds them.
    bias_BV: added to the logits, before the penalties.
    allowed_BV: the tokens that may be drawn at all.
    least_B: the length below which no token ends the row.
  """

  repetition_B: Array
  presence_B: Array
  frequency_B: Array
  bias_BV: Array
  allowed_BV: Array
  least_B: Array

  @classmethod
  def of(
    cls,
    params: Sequence[SamplingParams],
    lengths: Sequence[int],
    vocab_size: int,
  ) -> Self:
    """The controls of a batch, arrays of numpy.

    Args:
      params: of each row.
      lengths: of the prompts.
      vocab_size: V.
    """

    def column(name: str) -> Any:
      return np.array([getattr(p, name) for p in params], np.float32)

    shape = (len(params), vocab_size)
    bias_BV: Any = np.zeros(shape, np.float32)
    allowed_BV: Any = np.ones(shape, bool)
    for row, p in enumerate(params):
      for token, bias in dict(p.logit_bias).items():
        bias_BV[row, token] = bias
      if p.allowed_token_ids is not None:
        allowed_BV[row] = False
        allowed_BV[row, list(p.allowed_token_ids)] = True
    least_B: Any = np.array(
      [n + p.min_new_tokens for n, p in zip(lengths, params, strict=True)],
      np.int32,
    )
    return cls(
      repetition_B=column("repetition_penalty"),
      presence_B=column("presence_penalty"),
      frequency_B=column("frequency_penalty"),
      bias_BV=bias_BV,
      allowed_BV=allowed_BV,
      least_B=least_B,
    )

  def adjust(
    self,
    logits_BTV: Array,
    position_BT: Array,
    prompt_BV: Array,
    written_BTV: Array,
    eos_BE: Array,
  ) -> Array:
    """The logits that temperature and the rest start from.

    Args:
      logits_BTV: the model's, for the tokens at these positions.
      position_BT: places of the tokens that are to be drawn.
      prompt_BV: which tokens the prompt holds.
      written_BTV: how often the text before each place holds each token.
      eos_BE: the ids that end each row, padded with -1.
    """

    def wide(value_B: Array) -> Array:
      return value_B[:, None, None]

    logits_BTV = logits_BTV.astype(jnp.float32) + self.bias_BV[:, None]
    repeated_BTV = prompt_BV[:, None] | (written_BTV > 0)
    repetition_B11 = wide(self.repetition_B)
    penalised_BTV = jnp.where(
      logits_BTV > 0, logits_BTV / repetition_B11, logits_BTV * repetition_B11
    )
    logits_BTV = jnp.where(repeated_BTV, penalised_BTV, logits_BTV)
    logits_BTV -= wide(self.frequency_B) * written_BTV
    logits_BTV -= wide(self.presence_B) * (written_BTV > 0)
    early_BT1 = (position_BT < self.least_B[:, None])[..., None]
    eos_B1V = _marked(eos_BE, eos_BE >= 0, logits_BTV.shape[-1])[:, None]
    allowed_BTV = self.allowed_BV[:, None] & ~(early_BT1 & eos_B1V)
    return jnp.where(allowed_BTV, logits_BTV, LOG_ZERO)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class History:
  """The tokens that a row holds so far, without their order.

  Attributes:
    prompt_BV: which tokens the prompt holds.
    written_BV: how often the text, committed tokens, holds each.
  """

  prompt_BV: Array
  written_BV: Array

  @classmethod
  def of_prompts(
    cls, tokens_BS: Array, length_B: Array, vocab_size: int
  ) -> Self:
    """The history of rows that hold nothing but a prompt."""
    inside_BS = jnp.arange(tokens_BS.shape[1])[None] < length_B[:, None]
    prompt_BV = _marked(tokens_BS, inside_BS, vocab_size)
    return cls(prompt_BV, jnp.zeros_like(prompt_BV, jnp.int32))

  def add(self, token_BT: Array, count_B: Array) -> Self:
    """With the first `count_B` of these tokens written after the text."""
    count_B1V = self.along(token_BT, count_B[:, None])
    return dataclasses.replace(self, written_BV=count_B1V[:, 0])

  def along(self, token_BK: Array, count_BT: Array) -> Array:
    """How often each token is written, `[B, T, V]`.

    Args:
      token_BK: tokens after the text, drafts for instance.
      count_BT: how many of them come before each place.
    """
    batch, vocab_size = self.written_BV.shape
    places, drafts = count_BT.shape[1], token_BK.shape[1]
    before_BTK = jnp.arange(drafts)[None, None] < count_BT[..., None]
    written_BTV = jnp.broadcast_to(
      self.written_BV[:, None], (batch, places, vocab_size)
    )
    row = jnp.arange(batch)[:, None, None]
    place = jnp.arange(places)[None, :, None]
    return written_BTV.at[row, place, token_BK[:, None]].add(before_BTK)


def _marked(token_BS: Array, valid_BS: Array, vocab_size: int) -> Array:
  """Which tokens are among the valid ones, `[B, V]`."""
  batch = token_BS.shape[0]
  token_BS = jnp.where(valid_BS, token_BS, vocab_size)
  marked_BV = jnp.zeros((batch, vocab_size), bool)
  return marked_BV.at[jnp.arange(batch)[:, None], token_BS].set(
    True, mode="drop"
  )
