import json
import math

import jax.numpy as jnp
import pytest

from specdec_jax.stats import Counts, Stats


def _counts() -> Counts:
  """Two rows, K = 3; worked out by hand. Row 1 ends after its first block."""
  counts = Counts.zero(2, 3)
  for active, tokens, drafts, kept in (
    ([True, True], [3, 1], [3, 0], [2, 0]),
    ([True, False], [1, 0], [2, 0], [0, 0]),
    ([True, False], [4, 0], [3, 0], [3, 0]),
  ):
    counts = counts.add(*map(jnp.array, (active, tokens, drafts, kept)))
  return counts


def test_rows():
  first, second = (Stats.of_row(_counts(), row) for row in range(2))
  assert first == Stats(8, 3, (3, 3, 2), (2, 2, 1))
  assert second == Stats(1, 1, (0, 0, 0), (0, 0, 0))
  assert (first.draft_tokens, first.accepted_tokens) == (8, 5)
  assert first.acceptance_rate == pytest.approx(5 / 8)
  assert first.tokens_per_target_pass == pytest.approx(8 / 3)


def test_every_pass_adds_one_token_to_the_drafts_kept():
  # True unless a row ends within a block; the bonus is counted in tau.
  first = Stats.of_row(_counts(), 0)
  assert first.new_tokens == first.accepted_tokens + first.target_passes


def test_total_is_the_sum_and_not_a_mean_of_means():
  total = Stats.total(Stats.of_row(_counts(), row) for row in range(2))
  assert total == Stats(9, 4, (3, 3, 2), (2, 2, 1))
  assert total.tokens_per_target_pass == pytest.approx(9 / 4)
  assert total.acceptance_rate == pytest.approx(5 / 8)


def test_figures_of_nothing_are_nan_and_null():
  nothing = Stats(0, 0, (), ())
  assert math.isnan(nothing.acceptance_rate)
  assert math.isnan(nothing.tokens_per_target_pass)
  figures = nothing.to_dict()
  assert figures["acceptance_rate"] is figures["tokens_per_target_pass"] is None
  json.dumps(figures, allow_nan=False)


def test_dictionary_has_every_figure():
  first = Stats.of_row(_counts(), 0)
  assert json.loads(json.dumps(first.to_dict())) == {
    "new_tokens": 8,
    "target_passes": 3,
    "draft_tokens": 8,
    "accepted_tokens": 5,
    "tokens_per_target_pass": pytest.approx(8 / 3),
    "acceptance_rate": 5 / 8,
    "drafted_per_position": [3, 3, 2],
    "accepted_per_position": [2, 2, 1],
  }
