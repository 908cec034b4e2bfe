"""Rows of a batch do not know of each other, nor of how far a call goes."""

import dataclasses

import pytest

from specdec_jax import (
  DraftModel,
  SamplingParams,
  SpeculativeDecoder,
  buckets,
)
from tests.decode import toys

TARGET = toys.tiny()
DRAFTER = DraftModel(toys.perturbed(TARGET, 0.1, seed=1), 4)
PROMPTS = toys.prompts([1, 300, 2, 31, 9, 299, 17, 30], seed=2)
PARAMS = [
  SamplingParams(temperature=1.0, seed=1, max_new_tokens=20),
  SamplingParams(temperature=0.7, seed=2, max_new_tokens=13),
  SamplingParams(temperature=0.0, seed=3, max_new_tokens=25),
  SamplingParams(temperature=1.2, seed=1, top_p=0.9, max_new_tokens=1),
  SamplingParams(temperature=1.0, seed=2**32 - 1, top_k=9, max_new_tokens=17),
  SamplingParams(temperature=0.0, seed=0, max_new_tokens=16),
  SamplingParams(temperature=2.0, seed=9, min_p=0.05, max_new_tokens=24),
  SamplingParams(temperature=1.0, seed=1, max_new_tokens=20),
]
ROWS = range(len(PROMPTS))


def _decoder(rule: str) -> SpeculativeDecoder:
  return SpeculativeDecoder(TARGET, DRAFTER, rule)


def _generate(rule: str, rows):
  """These rows in one batch. A greedy batch would be another engine."""
  return _decoder(rule).generate(
    [PROMPTS[row] for row in rows], sampling=[_sampled(row) for row in rows]
  )


def _sampled(row: int) -> SamplingParams:
  # Temperatures so low that it is greedy, but by the rule itself.
  params = PARAMS[row]
  if params.temperature:
    return params
  return dataclasses.replace(params, temperature=1e-4)


def _assert_same(batch, row, alone, at=0):
  assert batch.tokens[row] == alone.tokens[at]
  assert batch.finish_reasons[row] == alone.finish_reasons[at]
  assert batch.drafted[row] == alone.drafted[at]
  assert batch.row_stats[row] == alone.row_stats[at]


@pytest.mark.parametrize("rule", ["token", "block", "gumbel"])
def test_every_row_is_as_if_alone(rule, monkeypatch):
  if rule != "block":  # other cache sizes are compiled for one rule only
    monkeypatch.setattr(buckets, "_slots", lambda count: 384)
  together = _generate(rule, ROWS)
  for row in ROWS:
    assert len(together.tokens[row]) == PARAMS[row].max_new_tokens
    _assert_same(together, row, _generate(rule, [row]))
  # Rows went their own ways: none waited for another's rejection.
  assert len({stats.target_passes for stats in together.row_stats}) > 3


def test_greedy_rows_in_the_batch_are_plain_decoding():
  together = _decoder("block").generate(PROMPTS, sampling=PARAMS)
  for row in ROWS:
    if PARAMS[row].temperature == 0:
      count = PARAMS[row].max_new_tokens
      expected = toys.greedy_text(TARGET, PROMPTS[row], count)
      assert together.tokens[row] == expected


def test_bucket_of_the_batch_does_not_matter():
  together = _generate("block", ROWS)
  some = [6, 1, 4]
  fewer = _generate("block", some)
  for at, row in enumerate(some):
    _assert_same(together, row, fewer, at)


@pytest.mark.parametrize("blocks", [1, 3, 1000])
def test_stream_is_generate_in_pieces(blocks):
  row = 4
  alone = _generate("block", [row])
  chunks = list(
    _decoder("block").stream(PROMPTS[row], sampling=PARAMS[row], blocks=blocks)
  )
  assert [x for chunk in chunks for x in chunk.tokens] == alone.tokens[0]
  assert [x for chunk in chunks for x in chunk.drafted] == alone.drafted[0]
  reasons = [chunk.finish_reason for chunk in chunks]
  assert reasons == [None] * (len(chunks) - 1) + ["length"]
  passes = alone.row_stats[0].target_passes
  assert len(chunks) == -(-passes // blocks)


def test_advancing_in_pieces_is_advancing_at_once():
  params = [_sampled(row) for row in ROWS]
  generation = _decoder("block").start(PROMPTS, sampling=params)
  partial = []
  for blocks in (1, 2, 1, 4):
    generation.advance(blocks)
    partial.append(generation.result())
  generation.advance()
  assert generation.done
  end, at_once = generation.result(), _generate("block", ROWS)
  for row in ROWS:
    _assert_same(end, row, at_once, row)
    for result in partial:
      tokens = result.tokens[row]
      assert tokens == end.tokens[row][: len(tokens)]
  # A row that has not ended yet says so.
  assert None in partial[0].finish_reasons
  assert partial[0].stats.target_passes == len(PROMPTS)
