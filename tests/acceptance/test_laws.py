"""The exact law of every rejection rule, by enumeration."""

import numpy as np
import pytest

from specdec_jax.acceptance import (
  BlockRule,
  Lenient,
  Threshold,
  TokenRule,
  Typical,
)
from specdec_jax.testing import (
  emission_law,
  expected_tokens,
  speculative_law,
  target_law,
  total_variation,
)
from tests.acceptance import laws

LOSSLESS = (TokenRule(), BlockRule())
LOSSY = (Threshold(), Typical(), Lenient())
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
@pytest.mark.parametrize("rule", [*LOSSLESS, *LOSSY], ids=str)
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
    (Threshold(), {1: 4 / 3, 2: 13 / 9, 4: 1.4938}),
    (Typical(), {1: 2, 2: 3, 4: 5}),
    (Lenient(), {1: 46 / 27, 2: 2.1989, 4: 2.7926}),
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


# As docs/rules.md states it: of one token, two and three, with K = 2.
@pytest.mark.parametrize(
  "rule, bias",
  [
    (Threshold(), (1 / 9, 13 / 81, 118 / 729)),
    (Typical(), (1 / 3, 1 / 3, 1 / 3)),
    (Lenient(), (1 / 27, 35 / 729, 35 / 729)),
  ],
  ids=str,
)
def test_bias_of_the_worked_example(rule, bias):
  for length, expected in enumerate(bias, start=1):
    law = speculative_law(rule, laws.P, laws.Q, 2, length)
    found = total_variation(law, target_law(laws.P, length))
    assert found == pytest.approx(expected, abs=1e-6)


lossy = pytest.mark.parametrize("rule", LOSSY, ids=str)


@lossy
@pytest.mark.parametrize("pair", laws.PAIRS)
def test_lossy_rules_let_nothing_impossible_out(rule, pair):
  p, q = laws.PAIRS[pair]
  law = speculative_law(rule, p, q, 3, 5)
  assert law.keys() <= target_law(p, 5).keys()


@lossy
def test_at_temperature_0_lossy_rules_are_exact(rule):
  p = laws.one_hot(laws.PAIRS["random"][0])

  def q(text):  # errs from the third token on
    return (p if len(text) < 2 else laws.shifted(p))(text)

  law = speculative_law(rule, p, q, 4, 5)
  assert total_variation(law, target_law(p, 5)) == 0
  assert expected_tokens(emission_law(rule, p, q, 4)) == 3


@pytest.mark.parametrize("rule", [Threshold(), Lenient()], ids=str)
def test_a_draft_equal_to_the_target_makes_no_bias(rule):
  p, _ = laws.PAIRS["equal"]
  law = speculative_law(rule, p, p, 3, 5)
  assert total_variation(law, target_law(p, 5)) < TOLERANCE


@pytest.mark.parametrize("pair", laws.PAIRS)
class TestLenient:
  def test_without_lenience_it_is_the_token_rule(self, pair):
    p, q = laws.PAIRS[pair]
    assert emission_law(Lenient(1.0), p, q, 3) == emission_law(
      TokenRule(), p, q, 3
    )

  @pytest.mark.parametrize("lenience", [0.9, 0.3])
  def test_no_token_is_more_probable_than_published(self, pair, lenience):
    p, q = laws.PAIRS[pair]
    law = speculative_law(Lenient(lenience), p, q, 1, 1)
    for (token,), share in law.items():
      assert share <= p(())[token] / lenience + TOLERANCE


def test_typical_drafts_are_kept_and_others_are_not():
  p = laws.constant(0.5, 0.3, 0.15, 0.05)
  entropy = -sum(share * np.log(share) for share in p(()))

  def passes(rule: Typical) -> list[bool]:
    drafts = [laws.constant(*row) for row in np.eye(4)]
    return [expected_tokens(emission_law(rule, p, q, 1)) == 2 for q in drafts]

  assert passes(Typical(0.2, 9.0)) == [True, True, False, False]
  # The entropy asks for less where the target is unsure.
  share = 0.1 * np.exp(entropy)
  assert passes(Typical(0.4, share)) == [True, True, True, False]
  assert passes(Typical(0.4, share * 1.6)) == [True, True, False, False]


@pytest.mark.parametrize("value", [0, 1.1, -0.5, float("nan")])
def test_lossy_rules_refuse_values_out_of_range(value):
  with pytest.raises(ValueError, match=f"lenience: .* got {value}"):
    Lenient(value)
  with pytest.raises(ValueError, match=f"epsilon: .* got {value}"):
    Typical(epsilon=value)
  with pytest.raises(ValueError, match=r"delta: .* positive .* got 0"):
    Typical(delta=0)
