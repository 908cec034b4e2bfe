"""The exact law of every rejection rule, by enumeration."""

import numpy as np
import pytest

from specdec_jax.acceptance import BlockRule, ThresholdRule, TokenRule
from specdec_jax.testing import (
  emission_law,
  expected_tokens,
  speculative_law,
  target_law,
  total_variation,
)
from tests.acceptance import laws

LOSSLESS = (TokenRule(), BlockRule())
# Of float32 sums; wrong rules are off by 1e-2 and more.
TOLERANCE = 1e-6

lossless = pytest.mark.parametrize("rule", LOSSLESS, ids=str)


@lossless
@pytest.mark.parametrize("size, width", [(2, 4), (3, 2), (4, 1), (4, 4)])
def test_output_has_the_target_law(rule, size, width):
  for seed in range(3):
    p = laws.random_law(2 * seed, size)
    q = laws.random_law(2 * seed + 1, size)
    law = speculative_law(rule, p, q, width, 3)
    assert total_variation(law, target_law(p, 3)) < TOLERANCE


@lossless
@pytest.mark.parametrize("pair", laws.PAIRS)
def test_corners_have_the_target_law(rule, pair):
  p, q = laws.PAIRS[pair]
  law = speculative_law(rule, p, q, 3, 5)
  assert total_variation(law, target_law(p, 5)) < TOLERANCE
  # Nothing impossible comes out, not even rarely.
  assert law.keys() <= target_law(p, 5).keys()


@lossless
@pytest.mark.parametrize("pair", ["q one-hot", "both one-hot", "random"])
def test_picked_drafts_have_the_target_law(rule, pair):
  # However they were picked: the rules do not ask.
  p, q = laws.PAIRS[pair]
  law = speculative_law(rule, p, q, 3, 5, point_mass=True)
  assert total_variation(law, target_law(p, 5)) < TOLERANCE


@pytest.mark.parametrize("pair", laws.PAIRS)
@pytest.mark.parametrize("rule", [*LOSSLESS, ThresholdRule()], ids=str)
@pytest.mark.parametrize("count", [0, 1, 2])
def test_filler_changes_nothing(rule, pair, count):
  p, q = laws.PAIRS[pair]
  padded = emission_law(rule, p, q, count, width=3)
  assert total_variation(padded, emission_law(rule, p, q, count)) < 1e-9


# As the table of docs/rules.md: tokens per pass of the toy pair.
@pytest.mark.parametrize(
  "rule, expected",
  [
    (TokenRule(), {1: 5 / 3, 2: 19 / 9, 4: 2.6049}),
    (BlockRule(), {1: 5 / 3, 2: 20 / 9, 4: 3.0494}),
    (ThresholdRule(), {1: 4 / 3, 2: 13 / 9, 4: 1.4938}),
  ],
  ids=str,
)
def test_worked_example_yields_as_many_tokens_as_published(rule, expected):
  for count, tokens in expected.items():
    law = emission_law(rule, laws.P, laws.Q, count)
    assert expected_tokens(law) == pytest.approx(tokens, abs=1e-4)


@pytest.mark.parametrize("pair", laws.PAIRS)
def test_block_keeps_no_fewer_drafts_than_token(pair):
  p, q = laws.PAIRS[pair]
  token, block = (
    expected_tokens(emission_law(rule, p, q, 3)) for rule in LOSSLESS
  )
  assert block >= token - 1e-6
  if pair == "random":
    assert block > token + 0.03


def test_block_and_token_are_equal_for_picked_drafts():
  p, q = laws.PAIRS["q one-hot"]
  token, block = (emission_law(rule, p, q, 3) for rule in LOSSLESS)
  assert total_variation(token, block) < TOLERANCE


@lossless
def test_acceptance_of_one_draft_is_one_minus_total_variation(rule):
  for seed in range(5):
    p, q = laws.random_law(seed, 3), laws.random_law(seed + 50, 3)
    overlap = np.minimum(p(()), q(())).sum()
    law = emission_law(rule, p, q, 1)
    assert expected_tokens(law) == pytest.approx(1 + overlap, abs=1e-6)


@lossless
def test_draft_equal_to_target_is_always_kept(rule):
  p, _ = laws.PAIRS["equal"]
  assert expected_tokens(emission_law(rule, p, p, 3)) == pytest.approx(4)


class TestThreshold:
  """Its bias is as the documentation states it, in docs/rules.md."""

  def law(self, length: int) -> dict:
    return speculative_law(ThresholdRule(), laws.P, laws.Q, 2, length)

  def test_one_step_of_the_worked_example(self):
    law = self.law(1)
    assert law[(0,)] == pytest.approx(2 / 9, abs=1e-6)
    assert law[(1,)] == pytest.approx(7 / 9, abs=1e-6)
    bias = total_variation(law, target_law(laws.P, 1))
    assert bias == pytest.approx(1 / 9, abs=1e-6)

  def test_longer_texts_of_the_worked_example(self):
    for length, expected in ((2, 13 / 81), (3, 118 / 729)):
      bias = total_variation(self.law(length), target_law(laws.P, length))
      assert bias == pytest.approx(expected, abs=1e-6)

  def test_it_is_exact_where_the_draft_is(self):
    p, _ = laws.PAIRS["equal"]
    law = speculative_law(ThresholdRule(), p, p, 3, 5)
    assert total_variation(law, target_law(p, 5)) < TOLERANCE
