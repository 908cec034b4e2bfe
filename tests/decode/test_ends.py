"""Ends of rows at every offset of a block, and what is counted there."""

import functools
from typing import NamedTuple

import numpy as np
import pytest

from specdec_jax import SamplingParams, SpeculativeDecoder
from specdec_jax.generation import GenerationResult
from specdec_jax.sampling import LOG_ZERO
from tests.decode import toys

K, SIZE, ROWS, PLACES = 4, 16, 32, 80
EOS, OTHER_EOS = 14, 15
PLAIN = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]
WRONG = 0  # a token that no target emits


class Case(NamedTuple):
  """A row: what target and draft say after the prompt, and what is due."""

  name: str
  target: list[int]
  draft: list[int]
  limit: int  # new tokens
  reason: str
  by: str  # who wrote each token: d the draft, t the target
  blocks: list[tuple[int, int]]  # drafts judged and kept in each
  prompt: int = 3  # tokens


def _at(offset: int, token: int) -> list[int]:
  return [*PLAIN[:offset], token, *PLAIN[offset:]]


def _cases():
  """Sums of `blocks` were worked out by hand."""
  for j in range(K):
    text = _at(j, EOS)
    yield Case(
      f"eos-kept-{j}", text, text, 30, "eos", "d" * (j + 1), [(j + 1, j + 1)]
    )
    yield Case(
      f"eos-corrects-{j}",
      text,
      _at(j, WRONG),
      30,
      "eos",
      "d" * j + "t",
      [(j + 1, j)],
    )
    # The draft says EOS at j, the target goes on; its EOS comes two later.
    yield Case(
      f"eos-rejected-{j}",
      [*PLAIN[: j + 1], OTHER_EOS],
      _at(j, EOS),
      30,
      "eos",
      "d" * j + "tt",
      [(K, j), (1, 0)],
    )
  text = _at(K, OTHER_EOS)
  yield Case("eos-bonus", text, text, 30, "eos", "ddddt", [(K, K)])
  text = _at(K + 1, EOS)
  yield Case(
    "eos-next-block", text, text, 30, "eos", "ddddtd", [(K, K), (1, 1)]
  )
  for count, by, blocks in (
    (1, "t", [(0, 0)]),
    (2, "dt", [(1, 1)]),
    (K, "dddt", [(3, 3)]),
    (K + 1, "ddddt", [(K, K)]),
    (K + 2, "ddddtt", [(K, K), (0, 0)]),
    (K + 3, "ddddtdt", [(K, K), (1, 1)]),
  ):
    yield Case(f"limit-{count}", PLAIN, PLAIN, count, "length", by, blocks)
  yield Case(
    "limit-after-rejection",
    PLAIN,
    _at(1, WRONG),
    3,
    "length",
    "dtt",
    [(2, 1), (0, 0)],
  )
  text = _at(2, EOS)
  yield Case("eos-at-limit", text, text, 3, "eos", "ddt", [(2, 2)])
  yield Case("eos-past-limit", text, text, 2, "length", "dt", [(1, 1)])
  yield Case("one-token", PLAIN, PLAIN, 5, "length", "ddddt", [(K, K)], 1)
  yield Case("eos-at-once", [EOS], [EOS], 1, "eos", "t", [(0, 0)], 1)


CASES = list(_cases())


def _decoder(target_BP, draft_BP, count_BP, rule) -> SpeculativeDecoder:
  logits_BPV = toys.certain(target_BP, SIZE)
  drafter = toys.ScriptedDrafter(K, (np.int32(draft_BP), np.int32(count_BP)))
  target = toys.script_model(logits_BPV, (OTHER_EOS, EOS))
  return SpeculativeDecoder(target, drafter, rule)


def _generate(decoder, prompts: list[int], limits: list[int], temperature):
  params = [
    SamplingParams(
      temperature=temperature, seed=row, max_new_tokens=limit, logprobs=True
    )
    for row, limit in enumerate(limits)
  ]
  texts = [[WRONG] * prompt for prompt in prompts]
  return decoder.generate(texts, sampling=toys.apart(params), trace=True)


def _told(completion):
  """Drafts judged and kept in each block, as the trace tells."""
  return [(len(block.drafts), block.kept) for block in completion.blocks]


# Greedy is a rule of its own once a whole batch is greedy.
RULES = {
  "greedy": ("block", 0.0),
  "token": ("token", 1.0),
  "block": ("block", 1.0),
  "gumbel": ("gumbel", 1.0),
}
rules = pytest.mark.parametrize("rule", RULES)


@functools.cache
def _result(rule: str) -> GenerationResult:
  """All cases, a row each; the rows that are left repeat the last."""
  rows = [*CASES, *[CASES[-1]] * (ROWS - len(CASES))]
  target_BP = np.full((ROWS, PLACES), 1)
  draft_BP = np.full((ROWS, PLACES), 2)
  for row, case in enumerate(rows):
    for script_P, tokens in (
      (target_BP[row], case.target),
      (draft_BP[row], case.draft),
    ):
      script_P[case.prompt : case.prompt + len(tokens)] = tokens
  name, temperature = RULES[rule]
  decoder = _decoder(target_BP, draft_BP, np.full((ROWS, PLACES), K), name)
  return _generate(
    decoder,
    [case.prompt for case in rows],
    [case.limit for case in rows],
    temperature,
  )


@rules
@pytest.mark.parametrize("row", range(len(CASES)), ids=[c.name for c in CASES])
def test_row_ends_where_it_should(rule, row):
  case, result = CASES[row], _result(rule)
  count = len(case.by)
  assert result.tokens[row] == case.target[:count]
  assert result.finish_reasons[row] == case.reason
  assert result.drafted[row] == [who == "d" for who in case.by]
  assert result.log_probs[row] == pytest.approx([0] * count, abs=1e-6)
  assert _told(result.completions[row]) == case.blocks
  stats = result.row_stats[row]
  assert stats.new_tokens == count
  assert stats.target_passes == len(case.blocks)
  for place in range(K):
    judged, kept = (
      sum(block[i] > place for block in case.blocks) for i in range(2)
    )
    assert stats.drafted_per_position[place] == judged
    assert stats.accepted_per_position[place] == kept


def _simulate(target, draft, counts, length, limit):
  """One row, one block after the other, in plain Python."""
  tokens, by, blocks = [], [], []
  while True:
    count = min(counts[length], K, limit - length - 1)
    kept = 0
    while kept < count and draft[length + kept] == target[length + kept]:
      kept += 1
    block = [int(token) for token in target[length : length + kept + 1]]
    ends = [i for i, token in enumerate(block) if token in (EOS, OTHER_EOS)]
    if ends:
      block = block[: ends[0] + 1]
      if ends[0] < kept:  # nothing behind an accepted EOS was wanted
        kept = count = ends[0] + 1
    tokens += block
    by += [True] * kept + [False] * (len(block) - kept)
    blocks.append((count, kept))
    length += len(block)
    if ends or length >= limit:
      return tokens, "eos" if ends else "length", by, blocks


@rules
def test_random_rows_agree_with_a_simulation(rule):
  rng = np.random.default_rng(5)
  shape = (ROWS, PLACES)
  target_BP = rng.integers(0, 3, shape)
  target_BP[rng.random(shape) < 0.05] = EOS
  draft_BP = np.where(rng.random(shape) < 0.7, target_BP, EOS)
  count_BP = rng.integers(0, K + 1, shape)
  prompts = rng.integers(1, 9, ROWS).tolist()
  limits = rng.integers(1, 40, ROWS).tolist()
  name, temperature = RULES[rule]
  decoder = _decoder(target_BP, draft_BP, count_BP, name)
  result = _generate(decoder, prompts, limits, temperature)
  steps = []
  for row in range(ROWS):
    tokens, reason, by, blocks = _simulate(
      target_BP[row],
      draft_BP[row],
      count_BP[row],
      prompts[row],
      prompts[row] + limits[row],
    )
    assert result.tokens[row] == tokens
    assert result.finish_reasons[row] == reason
    assert result.drafted[row] == by
    assert _told(result.completions[row]) == blocks
    stats = result.row_stats[row]
    assert (stats.new_tokens, stats.target_passes) == (len(tokens), len(blocks))
    assert stats.draft_tokens == sum(count for count, _ in blocks)
    assert stats.accepted_tokens == sum(kept for _, kept in blocks)
    for place in range(K):
      accepted = sum(kept > place for _, kept in blocks)
      assert stats.accepted_per_position[place] == accepted
    steps.append(len(blocks))
  # Rows ended at many times: those that ended first had long been inert.
  assert len(set(steps)) > 5


def test_finished_rows_are_inert():
  generation = None
  rng = np.random.default_rng(1)
  target_BP = rng.integers(0, 3, (ROWS, PLACES))
  decoder = _decoder(target_BP, target_BP, np.full((ROWS, PLACES), K), "block")
  params = [
    SamplingParams(max_new_tokens=1 + row, logprobs=True) for row in range(ROWS)
  ]
  generation = decoder.start([[WRONG]] * ROWS, sampling=params)
  before = generation.result()
  while not generation.done:
    generation.advance(1)
    after = generation.result()
    for row in range(ROWS):
      if before.finish_reasons[row]:
        assert after.tokens[row] == before.tokens[row]
        assert after.drafted[row] == before.drafted[row]
        assert after.log_probs[row] == before.log_probs[row]
        assert after.row_stats[row] == before.row_stats[row]
        assert after.finish_reasons[row] == before.finish_reasons[row]
    before = after
  assert [len(tokens) for tokens in before.tokens] == list(range(1, ROWS + 1))


def test_log_probs_are_of_raw_logits():
  """Also where the law is another, and whoever wrote the token."""
  rng = np.random.default_rng(3)
  logits_BPV = 2 * rng.standard_normal((ROWS, PLACES, SIZE))
  logits_BPV[0, :, 1] = LOG_ZERO
  target = toys.script_model(logits_BPV, (OTHER_EOS, EOS))
  script = (
    np.int32(rng.integers(0, SIZE, (ROWS, PLACES))),
    np.full((ROWS, PLACES), K, np.int32),
  )
  decoder = SpeculativeDecoder(target, toys.ScriptedDrafter(K, script), "block")
  params = [
    SamplingParams(
      temperature=0.5 * (row % 4), top_k=3, seed=row, logprobs=row % 5 != 0
    )
    for row in range(ROWS)
  ]
  result = decoder.generate(
    [[1]] * ROWS, sampling=toys.apart(params), max_new_tokens=20
  )
  log_sum_BP1 = np.log(np.exp(logits_BPV).sum(axis=-1, keepdims=True))
  log_p_BPV = logits_BPV - log_sum_BP1
  assert result.stats.accepted_tokens > 10
  for row, tokens in enumerate(result.tokens):
    if row % 5 == 0:
      assert result.log_probs[row] is None
      continue
    expected = log_p_BPV[row, np.arange(len(tokens)), tokens]
    np.testing.assert_allclose(result.log_probs[row], expected, atol=1e-5)
