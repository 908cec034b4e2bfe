"""Logits that are not numbers: one row ends, or drafts nothing."""

import dataclasses
from typing import NamedTuple

import numpy as np
import pytest

from specdec_jax import DraftModel, SamplingParams, SpeculativeDecoder
from specdec_jax.testing import table_model
from tests.decode import toys

# Shapes of test_ends.py, which share its programs.
K, SIZE, ROWS, PLACES, PROMPT = 4, 16, 32, 80, 3
EOS = 14


class Case(NamedTuple):
  bad_token: int  # the new token whose logits are bad
  limit: int
  eos: int | None  # the new token that is EOS
  value: float
  count: int  # tokens that come out
  reason: str
  drafts: int
  passes: int


CASES = [
  Case(0, 20, None, np.nan, 0, "nonfinite", 0, 1),
  Case(1, 20, None, np.inf, 1, "nonfinite", 1, 1),
  Case(3, 20, None, -np.inf, 3, "nonfinite", 3, 1),
  Case(4, 20, None, np.nan, 4, "nonfinite", 4, 1),
  Case(5, 20, None, np.nan, 5, "nonfinite", 4, 2),
  Case(7, 20, None, np.nan, 7, "nonfinite", 6, 2),
  Case(3, 20, 1, np.nan, 2, "eos", 2, 1),
  Case(4, 20, 3, np.nan, 4, "eos", 4, 1),
  Case(3, 3, None, np.nan, 3, "length", 2, 1),
  Case(2, 3, None, np.nan, 2, "nonfinite", 2, 1),
]


@pytest.mark.parametrize("rule, temperature", [("block", 0.0), ("block", 1.0)])
def test_row_ends_with_what_it_had(rule, temperature):
  target_BP = np.random.default_rng(0).integers(0, 9, (ROWS, PLACES))
  for row, case in enumerate(CASES):
    if case.eos is not None:
      target_BP[row, PROMPT + case.eos] = EOS
  logits_BPV = toys.certain(target_BP, SIZE)
  for row, case in enumerate(CASES):
    # One bad number among good ones is enough.
    logits_BPV[row, PROMPT - 1 + case.bad_token, 11] = case.value
  counts_BP = np.full((ROWS, PLACES), K, np.int32)
  drafter = toys.ScriptedDrafter(K, (np.int32(target_BP), counts_BP))
  target = toys.script_model(logits_BPV, (15, EOS))
  params = [
    SamplingParams(
      temperature=temperature,
      seed=row,
      max_new_tokens=CASES[row].limit if row < len(CASES) else 21,
      logprobs=True,
    )
    for row in range(ROWS)
  ]
  decoder = SpeculativeDecoder(target, drafter, rule)
  result = decoder.generate([[0] * PROMPT] * ROWS, sampling=toys.apart(params))
  for row, case in enumerate(CASES):
    expected = target_BP[row, PROMPT : PROMPT + case.count].tolist()
    assert result.tokens[row] == expected, case
    assert result.finish_reasons[row] == case.reason, case
    assert len(result.log_probs[row]) == len(result.drafted[row]) == case.count
    assert result.row_stats[row].draft_tokens == case.drafts, case
    assert result.row_stats[row].accepted_tokens == case.drafts, case
    assert result.row_stats[row].target_passes == case.passes, case
  for row in range(len(CASES), ROWS):
    expected = target_BP[row, PROMPT : PROMPT + 21].tolist()
    assert result.tokens[row] == expected
    assert result.finish_reasons[row] == "length"


def _cycle(step: int, size: int = 8) -> np.ndarray:
  """A table: `step` tokens on from the newest, for sure."""
  return np.roll(np.eye(size), step, axis=1)


def test_bad_logits_behind_a_rejected_draft_do_not_matter():
  table = _cycle(1)
  table[7] = np.nan
  target = table_model(table)
  draft_table = _cycle(1)
  draft_table[2] = np.eye(8)[7]  # after 2 the draft says 7, and goes on
  draft = table_model(draft_table)
  decoder = SpeculativeDecoder(target, DraftModel(draft, 4))
  result = decoder.generate([[0], [3]], max_new_tokens=6)
  # The first row is cut where 7 is what the target itself says.
  assert result.tokens == [[1, 2, 3, 4, 5, 6], [4, 5, 6, 7]]
  assert result.finish_reasons == ["length", "nonfinite"]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_draft_that_is_not_finite_proposes_nothing(value):
  target_BP = np.random.default_rng(0).integers(0, 9, (4, PLACES))
  target = toys.script_model(toys.certain(target_BP, SIZE))
  draft_BPV = toys.certain(target_BP, SIZE)
  draft_BPV[0, :, 3] = value  # never anything
  draft_BPV[1, 5, 3] = value  # not the token at place 6
  draft_BPV[2, 3:, :] = value  # nothing past the first token
  decoder = SpeculativeDecoder(
    target, DraftModel(toys.script_model(draft_BPV), K)
  )
  result = decoder.generate(
    [[0] * PROMPT] * 4,
    sampling=toys.apart([SamplingParams()] * 4),
    max_new_tokens=15,
  )
  for row in range(4):
    assert result.tokens[row] == target_BP[row, PROMPT : PROMPT + 15].tolist()
    assert result.finish_reasons[row] == "length"
  drafted = [stats.draft_tokens for stats in result.row_stats]
  passes = [stats.target_passes for stats in result.row_stats]
  assert drafted == [0, 11, 1, 12]
  assert passes == [15, 4, 14, 3]


def _spoiled(token: int):
  """A transformer whose embedding of one token is no number."""
  model = toys.tiny("llama", seed=5, layers=2)
  embed = model.params["embed.weight"].at[token].set(np.nan)
  return dataclasses.replace(
    model, params={**model.params, "embed.weight": embed}
  )


@pytest.mark.parametrize("place", [0, 1, 3])
def test_a_rejected_draft_spoils_no_earlier_position(place):
  # It has attention weight 0 at the positions before it, but 0 * NaN is NaN.
  model, prompt, count = _spoiled(60), [3, 1, 4], 12
  plain = toys.greedy_text(model, prompt, count)
  assert 60 not in plain
  tokens_BP = np.zeros((1, PLACES), np.int32)
  tokens_BP[0, len(prompt) : len(prompt) + count] = plain
  tokens_BP[0, len(prompt) + place] = 60
  script = (tokens_BP, np.full((1, PLACES), K, np.int32))
  decoder = SpeculativeDecoder(model, toys.ScriptedDrafter(K, script))
  result = decoder.generate(prompt, max_new_tokens=count)
  assert result.tokens == [plain]
  assert result.stats.accepted_per_position[0] > 0


def test_padding_spoils_no_row():
  # Shorter prompts are padded with token 0.
  model = _spoiled(0)
  prompts = [[7], [3, 1, 4, 1, 5, 9, 2, 6]]
  result = SpeculativeDecoder(model).generate(prompts, max_new_tokens=6)
  for prompt, tokens in zip(prompts, result.tokens, strict=True):
    assert tokens == toys.greedy_text(model, prompt, 6)


def test_a_prompt_without_numbers_ends_its_row_alone():
  model = _spoiled(60)
  prompts = [[3, 60, 4, 1], [3, 1, 4, 1]]
  result = SpeculativeDecoder(model).generate(prompts, max_new_tokens=6)
  assert result.finish_reasons == ["nonfinite", "length"]
  assert result.tokens == [[], toys.greedy_text(model, prompts[1], 6)]
