"""Caches after a generation, and how many slots they need."""

import jax
import numpy as np
import pytest

from specdec_jax import DraftModel, SamplingParams, SpeculativeDecoder
from specdec_jax.state import Engine
from tests.decode import toys

K, SLOTS = 4, 64
TARGET = toys.tiny()
DRAFTS = {"itself": TARGET, "other": toys.perturbed(TARGET, 0.1, seed=1)}


def _decoder(draft: str) -> SpeculativeDecoder:
  return SpeculativeDecoder(TARGET, DraftModel(DRAFTS[draft], K))


def _run(draft: str, prompts: list[list[int]], limits: list[int]):
  """A greedy generation of rows that end at these lengths."""
  params = [
    SamplingParams(max_new_tokens=limit - len(prompt))
    for limit, prompt in zip(limits, prompts, strict=True)
  ]
  generation = _decoder(draft).start(prompts, sampling=params)
  assert generation._state.tokens_BS.shape[1] == SLOTS
  generation.advance()
  return generation._state, generation.result()


def _largest_error(cache, fresh, row: int, count: int) -> float:
  """Over the first `count` slots of a row, in all layers."""
  return max(
    float(np.abs(a[row, :, :count] - b[row, :, :count]).max())
    for a, b in zip(jax.tree.leaves(cache), jax.tree.leaves(fresh), strict=True)
  )


def _errors(draft: str, limits: list[int]) -> tuple[list[float], list[float]]:
  """Of target and draft caches, against a fresh prefill of the same texts."""
  # As its own draft, the first two rows run their last pass one token before
  # the limit, as far to the right as a pass can start.
  lengths = [
    limit - 1 - count * (K + 1)
    for limit, count in zip(limits, (11, 8, 3, 1), strict=True)
  ]
  prompts = toys.prompts(lengths, seed=4)
  state, result = _run(draft, prompts, limits)
  texts = [a + b for a, b in zip(prompts, result.tokens, strict=True)]
  assert [len(text) for text in texts] == limits
  again = _decoder(draft).start(texts, max_new_tokens=1)._state
  target = [
    _largest_error(state.target, again.target, row, limit - 1)
    for row, limit in enumerate(limits)
  ]
  # The draft takes in its two newest tokens when it drafts the next one, which
  # it does not for the last token of a row.
  own = [
    _largest_error(state.draft, again.draft, row, limit - 3)
    for row, limit in enumerate(limits)
  ]
  return target, own


@pytest.mark.parametrize("draft", DRAFTS)
def test_a_full_cache_holds_what_a_fresh_prefill_does(draft):
  """With not a slot to spare; rows that ended early were fed on and on."""
  full = SLOTS - K
  target, own = _errors(draft, [full, full, full - 9, 40])
  assert max(target + own) < 1e-5


def test_a_cache_too_short_is_seen(monkeypatch):
  # One slot less would be enough as long as writes past the end are dropped
  # and not clamped; with two less, tokens are read from the wrong place.
  monkeypatch.setattr(Engine, "spare_slots", K - 2)
  full = SLOTS - K + 2
  target, _ = _errors("itself", [full, full, full - 9, 40])
  assert min(target[:2]) > 1e-2
  assert max(target[2:]) < 1e-5


@pytest.mark.parametrize("draft", DRAFTS)
def test_passes_write_just_the_slots_that_are_planned_for(draft):
  limit = 45
  state, _ = _run(draft, toys.prompts([1, 5, 13, 24], seed=4), [limit] * 4)
  # Slots are empty until they are written.
  written_S = np.any(
    [
      np.asarray(leaf).any(axis=(0, 1, 3))
      for leaf in jax.tree.leaves(state.target)
    ],
    axis=0,
  )
  last = int(np.flatnonzero(written_S)[-1])
  drafter, _ = _decoder(draft).drafter.split()
  engine = Engine(TARGET.network, drafter, _decoder(draft).rule)
  assert last == limit - 1 + engine.spare_slots


@pytest.mark.parametrize("count", [1, K, K + 1, K + 2])
def test_full_caches_do_not_change_tokens(count):
  prompts = toys.prompts([1, 2] + [SLOTS - K - count] * 2, seed=count)
  result = _decoder("other").generate(prompts, max_new_tokens=count)
  for prompt, tokens in zip(prompts, result.tokens, strict=True):
    assert tokens == toys.greedy_text(TARGET, prompt, count)
