"""Leviathan's formula, and the acceptance that goes into it."""

import random

import pytest

from specdec_jax.bench import predict


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.8, 1.0])
@pytest.mark.parametrize("length", [1, 4])
def test_equation_1(rate, length):
  full = [10] * length
  expected = (
    length + 1 if rate == 1 else (1 - rate ** (length + 1)) / (1 - rate)
  )
  assert predict.tokens_per_pass(rate, full, 10) == pytest.approx(expected)


def test_theorem_3_8():
  # The paper's walltime improvement with a = 0.8, c = 0.02, gamma = 5 and a
  # verifying pass that costs as much as a plain one.
  tau = predict.tokens_per_pass(0.8, [1] * 5, 1)
  expected = (1 - 0.8**6) / ((1 - 0.8) * (5 * 0.02 + 1))
  assert predict.speedup(tau, 0.02, 1.0, 5) == pytest.approx(expected)


def test_acceptance_counts_drafts_that_were_tested():
  # Of 10 blocks 8 kept the first, 4 of these the second, 3 of these the third.
  rate = predict.acceptance([10, 10, 10], [8, 4, 3])
  assert rate == pytest.approx(15 / (10 + 8 + 4))
  assert predict.acceptance([], []) == 0
  assert predict.acceptance([5, 5], [0, 0]) == 0
  assert predict.acceptance([5, 5], [5, 5]) == 1


def test_blocks_that_draft_less_count_as_what_they_are():
  # Half of the blocks draft nothing, the others two tokens.
  assert predict.tokens_per_pass(1.0, [5, 5], 10) == 2
  assert predict.acceptance([5, 5], [4, 4]) == pytest.approx(8 / 9)


def test_acceptance_finds_the_rate_of_a_simulation():
  rng, rate, length = random.Random(0), 0.7, 4
  drafted, accepted = [0] * length, [0] * length
  blocks = 20_000
  tokens = 0
  for _ in range(blocks):
    kept = 0
    while kept < length and rng.random() < rate:
      kept += 1
    tokens += kept + 1
    for place in range(length):
      drafted[place] += 1
      accepted[place] += place < kept
  found = predict.acceptance(drafted, accepted)
  # About 50,000 tests of a coin: a standard error of 0.002. Seeds are fixed.
  assert found == pytest.approx(rate, abs=0.008)
  tau = predict.tokens_per_pass(found, drafted, blocks)
  assert tau == pytest.approx(tokens / blocks, rel=0.02)
