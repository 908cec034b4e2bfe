"""A draft that has another tokenizer than the target.

TLI, token-level intersection: Timor et al., "Accelerating LLM Inference with
Lossless Speculative Decoding Algorithms for Heterogeneous Vocabularies", arXiv
2502.05202. The draft's law is restricted to the tokens that both have, and
renormalised. Drafts are drawn from this very law, so that it is lossless under
every lossless rule, and nothing but this file needs to know of it.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from specdec_jax.arrays import put, window
from specdec_jax.drafters.spelling import Dictionary
from specdec_jax.loading.tokenizer import Tokenizer
from specdec_jax.models.language_model import LanguageModel
from specdec_jax.sampling import LOG_ZERO
from specdec_jax.sharding import replicate
from specdec_jax.types import Array, Network, PyTree

# Slots of the draft's cache for each of the target's: how much longer a text
# may be in the draft's tokens.
_ROOM = 2
# Of the smaller vocabulary; with less in common, most texts cannot be drafted.
_LEAST_SHARE = 0.1


def translate(draft: LanguageModel, target: LanguageModel) -> LanguageModel:
  """The draft as a model of the target's tokens.

  Raises:
    ValueError: a tokenizer is missing or cannot be read byte by byte, or they
      have next to nothing in common.
  """
  read, write = _tokenizer(draft), _tokenizer(target)
  words = Dictionary.of(read, write)
  shared = int((words.same_V >= 0).sum())
  if shared < _LEAST_SHARE * min(read.size, write.size):
    raise ValueError(
      f"draft {draft.name} and target {target.name} share {shared} of their "
      f"{read.size} and {write.size} tokens, too few to draft with; use a "
      f"draft that shares at least {_LEAST_SHARE:.0%} of the smaller vocabulary"
    )
  words = Dictionary(*(replicate(array, draft.mesh) for array in words))
  return dataclasses.replace(
    draft,
    network=TranslatedNetwork(draft.network, target.network.vocab_size),
    params=(draft.params, words),
    tokenizer=write,
    eos_ids=target.eos_ids,
  )


def _tokenizer(model: LanguageModel) -> Tokenizer:
  """The model's tokenizer, if its tokens can be told by their bytes."""
  if model.tokenizer is None:
    raise ValueError(
      f'vocabulary="intersection": {model.name} has no tokenizer, and without '
      "one its token ids mean nothing to another model"
    )
  try:
    _ = model.tokenizer.token_bytes
  except ValueError as error:
    raise ValueError(
      f'vocabulary="intersection": the tokenizer of {model.name}: {error}'
    ) from error
  return model.tokenizer


@dataclasses.dataclass(frozen=True)
class TranslatedNetwork:
  """A network that is spoken to in the tokens of another vocabulary.

  Its weights are those of the network and a `Dictionary`. Its cache is that of
  the network, and where in it each token's spelling ends, `[B, S]`. Thus a row
  is rolled back by its length, as with any other cache: a pass that starts at
  a position goes on behind the spelling of the token before it.

  Attributes:
    network: reads the spellings.
    vocab_size: V, how many tokens the other vocabulary has.
  """

  network: Network
  vocab_size: int

  @property
  def max_length(self) -> int:
    """Every token is spelled by at least one, so no text can be longer."""
    return self.network.max_length

  @property
  def min_rows(self) -> int:
    return self.network.min_rows

  @property
  def cache_axes(self) -> tuple[str | None, ...]:
    return self.network.cache_axes

  def init_cache(self, batch: int, slots: int) -> PyTree:
    ends_BS = jnp.zeros((batch, slots), jnp.int32)
    return self.network.init_cache(batch, _ROOM * slots), ends_BS

  def forward(
    self,
    params: PyTree,
    tokens_BT: Array,
    start_B: Array,
    cache: PyTree,
    taps: tuple[int, ...] = (),
  ) -> tuple[Array, Array, PyTree]:
    """Reads the spellings; a token's hidden state is that of its last part.

    Tokens whose spelling does not fit the cache, or the network's context,
    have NaN: nothing is known about what follows them.
    """
    weights, words = params
    cache, ends_BS = cache
    size = tokens_BT.shape[1]
    position_BT = start_B[:, None] + jnp.arange(size)[None]
    word_BT = jnp.where(position_BT == 0, self.vocab_size, 0) + tokens_BT
    stop_BT = words.offset_R[word_BT + 1]
    count_BT = stop_BT - words.offset_R[word_BT]
    begin_B1 = window(jnp.pad(ends_BS, ((0, 0), (1, 0))), start_B, 1)
    ends_BT = begin_B1 + jnp.cumsum(count_BT, axis=1)
    # One pass is enough for most texts, which are little longer for the draft.
    width = size + (size + 1) // 2

    def unread(c: _Reading) -> Array:
      return jnp.any(c.slot_B < ends_BT[:, -1])

    def read(c: _Reading) -> _Reading:
      slot_BW = c.slot_B[:, None] + jnp.arange(width)[None]
      # The token whose spelling reaches into a slot. What follows the last is
      # filler, behind the row's end.
      token_BW = (ends_BT[:, None] <= slot_BW[..., None]).sum(axis=-1)
      token_BW = jnp.minimum(token_BW, size - 1)
      shift_BW = jnp.take_along_axis(stop_BT - ends_BT, token_BW, axis=1)
      hidden_BWD, _, cache = self.network.forward(
        weights, words.spelling_P[slot_BW + shift_BW], c.slot_B, c.cache
      )
      last_BT = ends_BT - 1 - c.slot_B[:, None]
      found_BT1 = ((last_BT >= 0) & (last_BT < width))[..., None]
      hidden_BTD = jnp.take_along_axis(
        hidden_BWD, jnp.clip(last_BT, 0, width - 1)[..., None], axis=1
      )
      return _Reading(
        slot_B=c.slot_B + width,
        hidden_BTD=jnp.where(found_BT1, hidden_BTD, c.hidden_BTD),
        cache=cache,
      )

    hidden = jax.eval_shape(
      self.network.forward, weights, tokens_BT, start_B, cache
    )[0]
    final = lax.while_loop(
      unread,
      read,
      _Reading(begin_B1[:, 0], jnp.zeros(hidden.shape, hidden.dtype), cache),
    )
    room = min(_ROOM * ends_BS.shape[1], self.max_length)
    fits_BT1 = (ends_BT <= room)[..., None]
    hidden_BTD = jnp.where(fits_BT1, final.hidden_BTD, jnp.nan)
    cache = final.cache, put(ends_BS, start_B, ends_BT)
    return hidden_BTD, hidden_BTD[..., :0], cache

  def head(self, params: PyTree, hidden_BTD: Array) -> Array:
    weights, words = params
    own_BTV = self.network.head(weights, hidden_BTD)
    same_11V = words.same_V[None, None]
    logits_BTV = jnp.take(own_BTV, words.same_V, axis=-1)
    return jnp.where(same_11V >= 0, logits_BTV, LOG_ZERO)


class _Reading(NamedTuple):
  """The carry of the passes: the next slot, and what was read before it."""

  slot_B: Array
  hidden_BTD: Array
  cache: PyTree
