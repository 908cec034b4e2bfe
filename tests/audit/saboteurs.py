"""Rules, drafters and networks with one fault each, as people make them."""

import dataclasses

import jax
import jax.numpy as jnp

from specdec_jax import BlockRule, DraftModel, TokenRule
from specdec_jax.acceptance import rejection
from specdec_jax.arrays import pick
from specdec_jax.models.language_model import LanguageModel
from specdec_jax.types import Array, Network, Proposal, PyTree, View

_PREFILL = 16  # passes of so many tokens are no blocks


@dataclasses.dataclass(frozen=True)
class KeepsAll(TokenRule):
  """Judges nothing."""

  def acceptance(self, log_p_BTV: Array, proposal: Proposal) -> Array:
    return rejection.drafted(proposal).astype(jnp.float32)


@dataclasses.dataclass(frozen=True)
class KeepsAllOfBlock(BlockRule):
  """The same, where no token rule is looked at."""

  def acceptance(self, log_p_BTV: Array, proposal: Proposal) -> Array:
    return rejection.drafted(proposal).astype(jnp.float32)


@dataclasses.dataclass(frozen=True)
class NoCorrection(TokenRule):
  """Accepts by p/q, and after a rejection draws from p."""

  def residual(
    self, log_p_BTV: Array, proposal: Proposal, kept_B: Array
  ) -> Array:
    return jnp.exp(pick(log_p_BTV, kept_B))


@dataclasses.dataclass(frozen=True)
class ReusesNoise(BlockRule):
  """Names noise by position alone: a rejected one meets it again."""

  coupled = True


@dataclasses.dataclass(frozen=True)
class RejectsHalf(TokenRule):
  """Lossless, and slow: rejects what it need not."""

  def acceptance(self, log_p_BTV: Array, proposal: Proposal) -> Array:
    return super().acceptance(log_p_BTV, proposal) / 2

  def residual(
    self, log_p_BTV: Array, proposal: Proposal, kept_B: Array
  ) -> Array:
    return rejection.correction(log_p_BTV, proposal, kept_B, 2.0)


@dataclasses.dataclass(frozen=True)
class TellsOtherTemperature(DraftModel):
  """Draws from its law and tells that of temperature 2."""

  def propose(self, params: PyTree, draft: PyTree, view: View):
    def draw(logits_BTV, position_BT, draft_BK):
      token_BT, log_q_BTV = view.draw(logits_BTV, position_BT, draft_BK)
      if log_q_BTV is not None:
        log_q_BTV = jax.nn.log_softmax(log_q_BTV / 2, axis=-1)
      return token_BT, log_q_BTV

    return super().propose(params, draft, view._replace(draw=draw))


@dataclasses.dataclass(frozen=True)
class DrawsOtherTemperature(DraftModel):
  """Tells its law and draws from that of temperature 1/2."""

  def propose(self, params: PyTree, draft: PyTree, view: View):
    def draw(logits_BTV, position_BT, draft_BK):
      _, log_q_BTV = view.draw(logits_BTV, position_BT, draft_BK)
      token_BT, _ = view.draw(2 * logits_BTV, position_BT, draft_BK)
      return token_BT, log_q_BTV

    return super().propose(params, draft, view._replace(draw=draw))


@dataclasses.dataclass(frozen=True)
class _Network:
  """A network with a fault that only a cache can show."""

  inner: Network

  vocab_size = property(lambda self: self.inner.vocab_size)
  max_length = property(lambda self: self.inner.max_length)
  min_rows = property(lambda self: self.inner.min_rows)
  cache_axes = property(lambda self: self.inner.cache_axes)

  def init_cache(self, batch: int, slots: int) -> PyTree:
    return self.inner.init_cache(batch, slots)

  def head(self, params: PyTree, hidden_BTD: Array) -> Array:
    return self.inner.head(params, hidden_BTD)


@dataclasses.dataclass(frozen=True)
class OffByOne(_Network):
  """Every pass but the first stands one position too late."""

  def forward(self, params, tokens_BT, start_B, cache, taps=()):
    start_B = jnp.where(start_B > 0, start_B + 1, 0)
    return self.inner.forward(params, tokens_BT, start_B, cache, taps)


@dataclasses.dataclass(frozen=True)
class Hole(_Network):
  """Of a draft: feeds the newest token alone, never the last draft kept."""

  def forward(self, params, tokens_BT, start_B, cache, taps=()):
    if tokens_BT.shape[1] != 2:
      return self.inner.forward(params, tokens_BT, start_B, cache, taps)
    hidden_B1D, tapped_B1F, cache = self.inner.forward(
      params, tokens_BT[:, 1:], start_B + 1, cache, taps
    )
    return (
      jnp.tile(hidden_B1D, (1, 2, 1)),
      jnp.tile(tapped_B1F, (1, 2, 1)),
      cache,
    )


@dataclasses.dataclass(frozen=True)
class _Remembers(_Network):
  """Keeps beside the cache, for each row, how far passes of blocks wrote."""

  def init_cache(self, batch: int, slots: int) -> PyTree:
    return self.inner.init_cache(batch, slots), jnp.zeros((batch, 2), jnp.int32)


@dataclasses.dataclass(frozen=True)
class ShiftedAfterRejection(_Remembers):
  """From the first rejection on a row's slots are one too far."""

  def forward(self, params, tokens_BT, start_B, cache, taps=()):
    cache, memory_B2 = cache
    written_B, off_B = memory_B2.T
    width = tokens_BT.shape[1]
    if width < _PREFILL:
      off_B = jnp.maximum(off_B, start_B < written_B)
      written_B = start_B + width
    hidden_BTD, tapped_BTF, cache = self.inner.forward(
      params, tokens_BT, start_B + off_B, cache, taps
    )
    memory_B2 = jnp.stack([written_B, off_B], axis=1)
    return hidden_BTD, tapped_BTF, (cache, memory_B2)


@dataclasses.dataclass(frozen=True)
class StaleKeys(_Remembers):
  """Slots of rejected drafts are not written again."""

  def forward(self, params, tokens_BT, start_B, cache, taps=()):
    old, memory_B2 = cache
    written_B, width = memory_B2[:, 0], tokens_BT.shape[1]
    hidden_BTD, tapped_BTF, new = self.inner.forward(
      params, tokens_BT, start_B, old, taps
    )

    def keep(old_BMSH, new_BMSH):
      slot_111S1 = jnp.arange(old_BMSH.shape[2])[None, None, :, None]
      stale = slot_111S1 < written_B[:, None, None, None]
      return jnp.where(stale, old_BMSH, new_BMSH)

    new = jax.tree.map(keep, old, new)
    if width < _PREFILL:
      written_B = jnp.maximum(written_B, start_B + width)
    memory_B2 = memory_B2.at[:, 0].set(written_B)
    return hidden_BTD, tapped_BTF, (new, memory_B2)


def with_network(model: LanguageModel, fault: type) -> LanguageModel:
  """The model with a fault in its network."""
  return dataclasses.replace(model, network=fault(model.network))
