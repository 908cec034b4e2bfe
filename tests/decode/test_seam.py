"""What is built for drafters and schedulers to come: taps, and row changes."""

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax import (
  SamplingParams,
  SpeculativeDecoder,
  buckets,
)
from specdec_jax.arrays import window
from specdec_jax.models.transformer import TransformerNetwork
from specdec_jax.types import Array, Features, Proposal, PyTree, View
from tests.decode import toys


class WideNetwork(TransformerNetwork):
  """Of a platform where a pass takes five rows, two of them committed."""

  min_rows = 5


TARGET = toys.tiny(layers=2)
TARGETS = {
  "narrow": TARGET,
  "wide": dataclasses.replace(
    TARGET, network=WideNetwork(TARGET.network.config, "float32")
  ),
}
K, SLOTS, WIDTH = 3, 64, 32


@dataclasses.dataclass(frozen=True)
class TappedDrafter:
  """Keeps what the target saw, by position.

  How many tokens it drafts is a function of all that it was shown; the tokens
  come from a script.
  """

  script_BS: Array | None = dataclasses.field(compare=False)
  num_draft_tokens: int = K
  taps: tuple[int, ...] = (1, 0)

  max_length = None
  cache_axes = ()

  def bind(self, target) -> "TappedDrafter":
    return self

  def split(self) -> tuple["TappedDrafter", PyTree]:
    return dataclasses.replace(self, script_BS=None), self.script_BS

  def init(self, batch: int, slots: int) -> PyTree:
    # Not zeros: a position that nothing was shown for is to be seen.
    return jnp.full((batch, slots, WIDTH * len(self.taps)), 99.0)

  def observe(
    self, params: PyTree, draft: Array, view: View, features: Features
  ) -> Array:
    rows, width, _ = features.hidden_BTF.shape
    index_1T = jnp.arange(width)[None]
    slot_BT = jnp.where(
      index_1T < features.count_B[:, None],
      features.start_B[:, None] + index_1T,
      draft.shape[1],  # dropped
    )
    row_B1 = jnp.arange(rows)[:, None]
    return draft.at[row_B1, slot_BT].set(features.hidden_BTF, mode="drop")

  def propose(
    self, params: PyTree, draft: Array, view: View
  ) -> tuple[Proposal, PyTree]:
    seen_BS1 = (jnp.arange(SLOTS)[None] < view.length_B[:, None] - 1)[..., None]
    total_B = jnp.where(seen_BS1, jnp.round(draft * 100), 0).sum(axis=(1, 2))
    count_B = jnp.mod(total_B.astype(int), K + 1)
    tokens_BK = window(params, view.length_B, K)
    return Proposal(tokens_BK, count_B, None), draft


PROMPTS = toys.prompts([1, 2, 8, 15, 16, 17, 18, 33], seed=6)


@functools.cache
def _decoder(target: str) -> SpeculativeDecoder:
  """With a drafter that is right about three tokens in four."""
  rng = np.random.default_rng(0)
  script_BS = rng.integers(0, toys.TINY_VOCAB, (len(PROMPTS), SLOTS), np.int32)
  for row, prompt in enumerate(PROMPTS):
    text = [*prompt, *toys.greedy_text(TARGET, prompt, SLOTS - len(prompt))]
    right_S = rng.random(SLOTS) < 0.75
    script_BS[row] = np.where(right_S, text, script_BS[row])
  return SpeculativeDecoder(
    TARGETS[target], TappedDrafter(jnp.asarray(script_BS))
  )


def _start(texts, monkeypatch, chunk: int, target: str):
  monkeypatch.setattr(buckets, "_CHUNKS", (chunk,))
  params = [
    SamplingParams(max_new_tokens=SLOTS - K - len(text)) for text in texts
  ]
  generation = _decoder(target).start(texts, sampling=params)
  assert generation._state.tokens_BS.shape == (len(texts), SLOTS)
  return generation


@pytest.mark.parametrize("blocks", [0, 1, 7])
@pytest.mark.parametrize("target", TARGETS)
def test_tapped_cache_is_that_of_a_fresh_prefill(target, blocks, monkeypatch):
  generation = _start(PROMPTS, monkeypatch, 16, target)
  generation.advance(blocks)
  result = generation.result()
  texts = [a + b for a, b in zip(PROMPTS, result.tokens, strict=True)]
  if blocks:
    assert min(map(len, result.tokens)) >= blocks
  if blocks == 7:  # rows have moved on differently, some drafts were kept
    assert len(set(map(len, result.tokens))) > 1
    assert result.stats.accepted_tokens > 0
  draft = np.asarray(generation._state.draft)
  for chunk in (4, 16, 64):
    fresh = np.asarray(_start(texts, monkeypatch, chunk, "narrow")._state.draft)
    for row, text in enumerate(texts):
      seen = slice(0, len(text) - 1)
      np.testing.assert_allclose(draft[row, seen], fresh[row, seen], atol=1e-4)
      # What is not committed, or newest, was never shown.
      assert (draft[row, len(text) - 1 :] == 99).all()
      assert (fresh[row, len(text) - 1 :] == 99).all()


def test_taps_are_layers_in_the_order_asked_for():
  tokens = jnp.asarray([PROMPTS[-1]], jnp.int32)
  start = jnp.zeros(1, jnp.int32)
  network, params = TARGET.network, TARGET.params

  def tapped(taps):
    cache = network.init_cache(1, SLOTS)
    return network.forward(params, tokens, start, cache, taps)[1]

  both, first, second = tapped((1, 0)), tapped((0,)), tapped((1,))
  np.testing.assert_allclose(both, jnp.concatenate([second, first], axis=-1))
  assert float(jnp.abs(first - second).max()) > 0.1


@pytest.mark.parametrize("target", TARGETS)
def test_tapped_drafter_changes_no_token(target, monkeypatch):
  generation = _start(PROMPTS, monkeypatch, 16, target)
  generation.advance()
  for prompt, tokens in zip(PROMPTS, generation.result().tokens, strict=True):
    assert tokens == toys.greedy_text(TARGET, prompt, len(tokens))
