"""The joint law of what the whole loop emits, against exact enumeration.

20,000 rows in one batch, chi-square. A right decoder fails a test here once in
a million seeds, and the seeds are fixed. All tests share a vocabulary, and so
one program for each rule and drafter.
"""

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax import (
  DraftModel,
  NoDraft,
  PromptLookup,
  SamplingParams,
  SpeculativeDecoder,
  sampling,
)
from specdec_jax.acceptance import (
  BlockRule,
  Threshold,
  TokenRule,
  named_rule,
)
from specdec_jax.generation import GenerationResult
from specdec_jax.sampling import LOG_ZERO
from specdec_jax.testing import (
  emission_law,
  goodness_of_fit,
  speculative_law,
  table_model,
  target_law,
)
from tests.decode import toys

FALSE_ALARMS = 1e-6
ROWS, K, SIZE = 20_000, 2, 3
WARM = SamplingParams(temperature=1.0)

# The toy pair; a third token keeps the vocabulary that of the tables below.
P, Q = np.array([1 / 3, 2 / 3, 0]), np.array([2 / 3, 1 / 3, 0])


def _tables(seed: int) -> np.ndarray:
  """A law that depends on the two newest tokens."""
  return np.random.default_rng(seed).dirichlet(np.ones(SIZE), (SIZE, SIZE))


TABLE_P, TABLE_Q = _tables(1), _tables(2)


def decode(
  target: np.ndarray,
  drafter,
  rule,
  prompts: list[list[int]],
  params: list[SamplingParams] | SamplingParams = WARM,
  tokens: int = 5,
) -> GenerationResult:
  decoder = SpeculativeDecoder(table_model(target), drafter, rule)
  return decoder.generate(prompts, sampling=params, max_new_tokens=tokens)


def draft_model(table: np.ndarray, **options) -> DraftModel:
  return DraftModel(table_model(table), K, **options)


def assert_law(samples, target, prompt, params=WARM):
  law = target_law(
    toys.table_law(target, params, tuple(prompt)), len(samples[0])
  )
  assert goodness_of_fit(samples, law) > FALSE_ALARMS


def expected_passes(rule, target, draft, tokens: int) -> float:
  """Of one row, with K cut to what the limit leaves room for."""

  @functools.cache
  def after(text) -> float:
    left = tokens - len(text)
    if left <= 0:
      return 0.0
    block = emission_law(rule, target, draft, min(K, left - 1), text)
    return 1 + sum(share * after(text + out) for out, share in block.items())

  return after(())


DRAFTERS = {
  "draft-model": draft_model(Q),
  "lookup": PromptLookup(K, max_ngram=2),
}
lossless = pytest.mark.parametrize("rule", ["token", "block", "gumbel"])


@lossless
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_worked_example(rule, drafter):
  prompt = [0, 1, 0, 0, 1]  # has matches for the lookup
  result = decode(P, DRAFTERS[drafter], rule, [prompt] * ROWS)
  assert_law(result.tokens, P, prompt)
  assert result.stats.accepted_tokens > ROWS / 4


def test_worked_example_without_draft():
  result = decode(P, NoDraft(), "block", [[0]] * ROWS)
  assert_law(result.tokens, P, [0])
  assert result.stats.tokens_per_target_pass == 1


@pytest.mark.parametrize("rule", ["token", "block"])
def test_number_of_passes_is_as_enumerated(rule):
  """Within 5 standard errors: false alarms below 1e-6."""
  result = decode(P, draft_model(Q), rule, [[0]] * ROWS, tokens=6)
  passes = np.array([stats.target_passes for stats in result.row_stats])
  expected = expected_passes(
    named_rule(rule), lambda text: P, lambda text: Q, 6
  )
  error = passes.std() / np.sqrt(ROWS)
  assert passes.mean() == pytest.approx(expected, abs=5 * error)


MIXED = [
  (SamplingParams(temperature=0.6), [0, 1]),
  (SamplingParams(temperature=1.5, top_p=0.8), [2]),
  (SamplingParams(temperature=1.0, top_k=2), [1, 2, 0, 1, 1]),
  (SamplingParams(temperature=0.8, top_k=2, top_p=0.9, min_p=0.3), [0, 0]),
  (SamplingParams(temperature=2.0, min_p=0.4), [2, 1]),
  (SamplingParams(), [1]),  # greedy
]


@lossless
@pytest.mark.parametrize("min_confidence", [0.0, 0.55])
def test_mixed_rows_of_a_model_with_memory(rule, min_confidence):
  drafter = draft_model(TABLE_Q, min_confidence=min_confidence)
  _check_mixed(TABLE_P, drafter, rule)


@pytest.mark.parametrize("rule", ["token", "block"])
def test_mixed_rows_with_lookup(rule):
  _check_mixed(TABLE_P, PromptLookup(K, max_ngram=2), rule)


def _check_mixed(target, drafter, rule):
  kinds = [MIXED[row % len(MIXED)] for row in range(ROWS)]
  params = [
    dataclasses.replace(kind, seed=row) for row, (kind, _) in enumerate(kinds)
  ]
  texts = [prompt for _, prompt in kinds]
  result = decode(target, drafter, rule, texts, params, tokens=4)
  assert result.stats.accepted_tokens > ROWS / 10
  for kind, (each, prompt) in enumerate(MIXED):
    assert_law(result.tokens[kind :: len(MIXED)], target, prompt, each)


def test_a_draft_that_is_unsure_stops_before_it_draws():
  # After token 0 the draft is sure, after the others it is not.
  table = np.array([[0.9, 0.1, 0], [0.4, 0.3, 0.3], [0.3, 0.4, 0.3]])
  drafter = draft_model(table, min_confidence=0.5)
  result = decode(TABLE_P, drafter, "block", [[0]] * ROWS)
  assert_law(result.tokens, TABLE_P, [0])
  drafted = result.stats.drafted_per_position
  assert drafted[0] > 0 and drafted[1] > 0
  unsure = decode(TABLE_P, drafter, "block", [[1]] * ROWS, tokens=2)
  assert_law(unsure.tokens, TABLE_P, [1])
  assert unsure.stats.draft_tokens == 0


class TestFaults:
  """Decoders with a fault in them; the tests above would fail with each."""

  def p_value(self, result, target, prompt, params=WARM) -> float:
    law = target_law(toys.table_law(target, params, tuple(prompt)), 5)
    return goodness_of_fit(result.tokens, law)

  def test_block_noise_named_by_position_alone(self):
    @dataclasses.dataclass(frozen=True)
    class Stale(BlockRule):
      coupled = True

    # With three tokens it would not show: a last block of one draft happens to
    # make up for it.

    result = decode(P, draft_model(Q), Stale(), [[0]] * ROWS)
    assert self.p_value(result, P, [0]) < FALSE_ALARMS

  def test_softmax_reported_for_picked_drafts(self):
    class Dishonest(DraftModel):
      def propose(self, params, draft, view):
        def draw(logits_BTV, position_BT, draft_BK):
          _, log_q_BTV = view.draw(logits_BTV, position_BT, draft_BK)
          return logits_BTV.argmax(axis=-1), log_q_BTV

        return super().propose(params, draft, view._replace(draw=draw))

    drafter = Dishonest(table_model(Q), K)
    result = decode(P, drafter, "token", [[0]] * ROWS)
    assert self.p_value(result, P, [0]) < FALSE_ALARMS

  def test_drafts_dropped_after_they_were_drawn(self):
    class Dropping(DraftModel):
      def propose(self, params, draft, view):
        proposal, draft = super().propose(params, draft, view)
        index_BK1 = proposal.tokens_BK[..., None]
        log_q_BK = jnp.take_along_axis(proposal.log_q_BKV, index_BK1, axis=2)
        likely_BK = log_q_BK[..., 0] > np.log(0.5)
        count_B = jnp.cumprod(likely_BK.astype(int), axis=1).sum(axis=1)
        return proposal._replace(length_B=count_B), draft

    drafter = Dropping(table_model(Q), K)
    result = decode(P, drafter, "token", [[0]] * ROWS)
    assert self.p_value(result, P, [0]) < FALSE_ALARMS

  def test_top_p_before_temperature(self, monkeypatch):
    right = sampling.log_probs

    def wrong(logits_BTV, law):
      plain = dataclasses.replace(law, temperature_B=law.temperature_B * 0 + 1)
      kept_BTV = right(logits_BTV, plain) > LOG_ZERO / 2
      rest = dataclasses.replace(law, top_p_B=law.top_p_B * 0 + 1)
      return right(jnp.where(kept_BTV, logits_BTV, LOG_ZERO), rest)

    monkeypatch.setattr(sampling, "log_probs", wrong)

    @dataclasses.dataclass(frozen=True)
    class Fresh(TokenRule):
      """An engine of its own: no program compiled with the right order."""

    params = SamplingParams(temperature=1.5, top_p=0.8)
    result = decode(
      TABLE_P, draft_model(TABLE_Q), Fresh(), [[2]] * ROWS, params
    )
    assert self.p_value(result, TABLE_P, [2], params) < FALSE_ALARMS

  def test_threshold_has_the_bias_of_the_documentation(self):
    result = decode(P, draft_model(Q), "threshold", [[0]] * ROWS)
    assert self.p_value(result, P, [0]) < FALSE_ALARMS
    # The limit is too far away for the first three tokens to feel it.
    law = speculative_law(Threshold(), lambda text: P, lambda text: Q, K, 3)
    first = [tokens[:3] for tokens in result.tokens]
    assert goodness_of_fit(first, law) > FALSE_ALARMS
