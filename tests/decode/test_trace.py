"""What a trace tells of each block."""

import math

import numpy as np
import pytest

from specdec_jax import (
  DraftModel,
  PromptLookup,
  SamplingParams,
  SpeculativeDecoder,
)
from specdec_jax.testing import table_model

K, SIZE, NEW = 3, 4, 24
RNG = np.random.default_rng(2)
TARGET, DRAFT = RNG.dirichlet(np.ones(SIZE), (2, SIZE, SIZE))
TARGET[:, 1, 2] = 0
TARGET /= TARGET.sum(axis=-1, keepdims=True)
PROMPTS = [[1], [2, 0, 3], [0, 1]]


def generate(drafter, rule="token", temperature=1.0, **options):
  return SpeculativeDecoder(table_model(TARGET), drafter, rule).generate(
    PROMPTS,
    max_new_tokens=NEW,
    sampling=SamplingParams(temperature=temperature, seed=7),
    **options,
  )


def model_drafter():
  return DraftModel(table_model(DRAFT), num_draft_tokens=K)


def walk(prompt, completion):
  """Each block with the text before it."""
  text = list(prompt)
  for block in completion.blocks:
    yield text, block
    text += block.drafts[: block.kept]
    if block.token is not None:
      text.append(block.token)
  assert text == prompt + completion.tokens


def laws(table, text, drafts):
  """The law at the place of each draft, and behind them."""
  for place in range(len(drafts) + 1):
    *_, older, newest = [0, *text, *drafts[:place]]
    yield table[older, newest]


@pytest.mark.parametrize("rule", ["token", "block"])
def test_p_and_q_are_those_of_the_models(rule):
  rejected = 0
  result = generate(model_drafter(), rule, trace=True)
  for prompt, completion in zip(PROMPTS, result.completions, strict=True):
    for text, block in walk(prompt, completion):
      p = list(laws(TARGET, text, block.drafts))
      q = list(laws(DRAFT, text, block.drafts))
      for place, draft in enumerate(block.drafts):
        told = math.exp(block.target_log_probs[place])
        assert told == pytest.approx(p[place][draft], rel=1e-5)
        told = math.exp(block.draft_log_probs[place])
        assert told == pytest.approx(q[place][draft], rel=1e-5)
        both = np.minimum(p[place], q[place]).sum()
        assert block.overlaps[place] == pytest.approx(both, rel=1e-5)
      assert block.token is not None
      own = math.exp(block.token_log_prob)
      assert own == pytest.approx(p[block.kept][block.token], rel=1e-5)
      rejected += block.kept < len(block.drafts)
  assert rejected > 5
  assert any(
    -math.inf in block.target_log_probs
    for completion in result.completions
    for block in completion.blocks
  )


def test_what_was_picked_has_no_q():
  for drafter, rule, temperature in (
    (model_drafter(), "token", 0.0),
    (model_drafter(), "gumbel", 1.0),
    (PromptLookup(num_draft_tokens=K), "token", 1.0),
  ):
    result = generate(drafter, rule, temperature, trace=True)
    for prompt, completion in zip(PROMPTS, result.completions, strict=True):
      for text, block in walk(prompt, completion):
        if block.drafts:
          assert block.draft_log_probs is block.overlaps is None
        p = list(laws(TARGET, text, block.drafts))
        told = [math.exp(log) for log in block.target_log_probs]
        wanted = [p[i][draft] for i, draft in enumerate(block.drafts)]
        assert told == pytest.approx(wanted, rel=1e-5)


def test_a_trace_changes_nothing_else():
  traced = generate(model_drafter(), trace=True)
  plain = generate(model_drafter())
  assert traced.tokens == plain.tokens
  assert traced.stats == plain.stats
  assert all(completion.blocks is None for completion in plain.completions)


def test_rows_that_wait_have_their_own():
  together = generate(model_drafter(), trace=True)
  queued = generate(model_drafter(), trace=True, batch_size=2)
  for one, other in zip(together.completions, queued.completions, strict=True):
    assert one.blocks == other.blocks
