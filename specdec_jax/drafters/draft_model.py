"""Drafts with a smaller language model."""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from specdec_jax.arrays import pick, put, window
from specdec_jax.drafters.intersection import translate
from specdec_jax.models.language_model import LanguageModel
from specdec_jax.sampling import is_integer
from specdec_jax.types import Array, Features, Proposal, PyTree, View

VOCABULARIES = ("same", "intersection")


@dataclasses.dataclass(frozen=True)
class DraftModel:
  """A drafter that is a language model.

  Attributes:
    model: the draft model, from `specdec_jax.load`.
    num_draft_tokens: K, the most tokens it drafts in a block.
    min_confidence: a row stops drafting before a position at which the
      draft's largest probability (of its plain softmax) is below this; 0
      always drafts K. The decision never depends on the token it is about.
    vocabulary: "same" if the draft must have the target's tokenizer;
      "intersection" lets it have another one, and drafts the tokens that both
      have. The text stays the target's either way.

  Raises:
    ValueError: a value lies outside its range.
  """

  model: LanguageModel
  num_draft_tokens: int = 4
  min_confidence: float = dataclasses.field(default=0.0, compare=False)
  vocabulary: str = dataclasses.field(default="same", compare=False)

  taps = ()

  def __post_init__(self) -> None:
    if not is_integer(self.num_draft_tokens) or self.num_draft_tokens < 1:
      raise ValueError(
        "num_draft_tokens: expected an integer of at least 1 with a draft "
        f"model, got {self.num_draft_tokens}; for plain decoding use NoDraft()"
      )
    if not 0 <= self.min_confidence <= 1:
      raise ValueError(
        "min_confidence: expected a probability in [0, 1], got "
        f"{self.min_confidence}"
      )
    if self.vocabulary not in VOCABULARIES:
      raise ValueError(
        f"vocabulary: expected one of {', '.join(VOCABULARIES)}, got "
        f"{self.vocabulary!r}"
      )

  @property
  def max_length(self) -> int:
    return self.model.network.max_length

  @property
  def cache_axes(self) -> tuple[str | None, ...]:
    return self.model.network.cache_axes

  def bind(self, target: LanguageModel) -> "DraftModel":
    if self.model.mesh != target.mesh:
      raise ValueError(
        f"draft {self.model.name} and target {target.name} lie on different "
        "meshes; load both with the same mesh="
      )
    reason = self.model.tokenizer_mismatch(target)
    if reason is None:
      return self
    if self.vocabulary == "intersection":
      return dataclasses.replace(self, model=translate(self.model, target))
    raise ValueError(
      f"draft {self.model.name} and target {target.name} have different "
      f"tokenizers: {reason}; use a draft with the target's tokenizer, or "
      'vocabulary="intersection"'
    )

  def split(self) -> tuple["DraftModel", PyTree]:
    threshold = np.float32(self.min_confidence)
    static = dataclasses.replace(self, model=self.model.skeleton())
    return static, (self.model.params, threshold)

  def init(self, batch: int, slots: int) -> PyTree:
    return self.model.network.init_cache(batch, slots)

  def observe(
    self, params: PyTree, draft: PyTree, view: View, features: Features
  ) -> PyTree:
    size = features.hidden_BTF.shape[1]
    tokens_BT = window(view.tokens_BS, features.start_B, size)
    weights, _ = params
    _, _, cache = self.model.network.forward(
      weights, tokens_BT, features.start_B, draft
    )
    return cache

  def propose(
    self, params: PyTree, draft: PyTree, view: View
  ) -> tuple[Proposal, PyTree]:
    """Runs the draft until each row has K tokens or has stopped by itself."""
    network, (weights, min_confidence) = self.model.network, params
    room_B = jnp.minimum(view.limit_B - 1, self.max_length) - view.length_B
    room_B = jnp.minimum(room_B, self.num_draft_tokens)

    def running(end: int, c: _Drafting) -> Array:
      return jnp.any(c.drafting_B) & (c.step < end)

    def draft_one(size: int, c: _Drafting) -> _Drafting:
      end_B = view.length_B + c.step
      start_B = jnp.maximum(end_B - size, 0)
      hidden_BTD, _, cache = network.forward(
        weights, window(c.tokens_BS, start_B, size), start_B, c.cache
      )
      logits_BTV = network.head(weights, hidden_BTD)
      logits_BV = pick(logits_BTV, end_B - 1 - start_B)
      drafting_B = c.drafting_B & _confident(logits_BV, min_confidence)
      draft_BK = window(c.tokens_BS, view.length_B, self.num_draft_tokens)
      token_B1, log_q_B1V = view.draw(
        logits_BV[:, None], end_B[:, None], draft_BK
      )
      log_q_BKV = c.log_q_BKV
      if log_q_B1V is not None:
        log_q_BKV = lax.dynamic_update_slice_in_dim(
          log_q_BKV, log_q_B1V, c.step, axis=1
        )
      count_B = c.count_B + drafting_B
      return _Drafting(
        step=c.step + 1,
        tokens_BS=put(c.tokens_BS, end_B, token_B1),
        log_q_BKV=log_q_BKV,
        count_B=count_B,
        drafting_B=drafting_B & (count_B < room_B),
        cache=cache,
      )

    drafting = _Drafting(
      step=jnp.int32(0),
      tokens_BS=view.tokens_BS,
      log_q_BKV=self._empty_laws(view),
      count_B=jnp.zeros_like(view.length_B),
      drafting_B=view.active_B & (room_B > 0),
      cache=draft,
    )
    # The first pass feeds two tokens: the last draft of a fully accepted block
    # is in no cache yet, and the newest token alone would leave a hole. The
    # others feed one, unless the platform has no fast pass over one.
    until = {max(2, network.min_rows): 1}
    if self.num_draft_tokens > 1:
      until[network.min_rows] = self.num_draft_tokens
    for size, end in until.items():
      drafting = lax.while_loop(
        functools.partial(running, end),
        functools.partial(draft_one, size),
        drafting,
      )
    tokens_BK = window(drafting.tokens_BS, view.length_B, self.num_draft_tokens)
    proposal = Proposal(tokens_BK, drafting.count_B, drafting.log_q_BKV)
    return proposal, drafting.cache

  def _empty_laws(self, view: View) -> Array | None:
    """Room for the laws of K drafts, if this rule wants to see them."""
    batch, vocab_size = view.length_B.shape[0], self.model.network.vocab_size
    logits_B1V = jax.ShapeDtypeStruct((batch, 1, vocab_size), jnp.float32)
    position_B1 = jax.ShapeDtypeStruct((batch, 1), jnp.int32)
    draft_BK = jax.ShapeDtypeStruct((batch, 0), jnp.int32)
    _, law = jax.eval_shape(view.draw, logits_B1V, position_B1, draft_BK)
    if law is None:
      return None
    return jnp.zeros((batch, self.num_draft_tokens, vocab_size), law.dtype)


class _Drafting(NamedTuple):
  """The draft loop's carry; `tokens_BS` holds the drafts after the text."""

  step: Array
  tokens_BS: Array
  log_q_BKV: Any
  count_B: Array
  drafting_B: Array
  cache: PyTree


def _confident(logits_BV: Array, min_confidence: Array) -> Array:
  """Whether the draft's best guess is finite and probable enough, `[B]`."""
  highest_B = jax.nn.softmax(logits_BV, axis=-1).max(axis=-1)
  finite_B = jnp.isfinite(logits_BV).all(axis=-1)
  return finite_B & (highest_B >= min_confidence)
