"""The tests of the audit: how often they are wrong, and what they see."""

import numpy as np
import pytest

from specdec_jax.audit import chance

RNG_SEED = 5
LAW = np.array([0.4, 0.3, 0.2, 0.06, 0.03, 0.007, 0.003])
OTHER = np.array([0.32, 0.38, 0.2, 0.06, 0.03, 0.007, 0.003])  # TV 0.08


def pairs(rng, other, size, places=2):
  return [
    (
      rng.choice(len(LAW), size, p=LAW).tolist(),
      rng.choice(len(LAW), size, p=other).tolist(),
    )
    for _ in range(places)
  ]


def test_equal_laws_rarely_fail_and_bounds_hold():
  # Of 400 p-values 20 are below 0.05 on average; more than 40 are not seen in
  # one of 10,000 runs.
  rng = np.random.default_rng(RNG_SEED)
  found = [chance.compare(pairs(rng, LAW, 300), 0.05) for _ in range(400)]
  assert 5 < sum(it.p_value < 0.05 for it in found) < 40
  assert sum(it.low > 0 for it in found) < 20


def test_other_laws_fail_and_bounds_hold():
  rng = np.random.default_rng(RNG_SEED)
  found = [chance.compare(pairs(rng, OTHER, 4000), 0.01) for _ in range(50)]
  assert all(it.p_value < 1e-4 for it in found)
  assert all(it.low <= 0.08 <= it.high for it in found)
  assert all(it.low > 0 for it in found)


def test_rare_outcomes_are_pooled():
  many = list(range(1000))
  assert chance.compare([(many, many)], 0.01).cells == 1
  # The rare half of one sample is nothing but other rare ones.
  ours = [0] * 500 + list(range(1, 501))
  theirs = [0] * 500 + list(range(501, 1001))
  found = chance.compare([(ours, theirs)], 0.01)
  assert (found.cells, found.p_value, found.variation) == (2, 1.0, 0.0)
  # Too rare even in sum: no cell of its own.
  ours, theirs = [0] * 990 + [1] * 10, [0] * 1000
  assert chance.compare([(ours, theirs)], 0.01).cells == 1


@pytest.mark.parametrize("mean, low, high", [(0.3, 0, 8), (0.45, 60, 100)])
def test_a_drift_is_seen(mean, low, high):
  # Freedman's bound is above the true p-value: of 100 at 0.05 few fall below.
  rng = np.random.default_rng(RNG_SEED)
  failed = 0
  for _ in range(100):
    steps = (rng.random(200) < mean) - 0.3
    failed += chance.drift(steps, np.full(200, 0.21))[1] < 0.05
  assert low <= failed <= high


def test_a_drift_of_nothing_and_of_what_must_not_be():
  assert chance.drift(np.zeros(3), np.zeros(3)) == (0.0, 1.0)
  z, p_value = chance.drift(np.ones(60), np.zeros(60))
  assert z > 50
  assert p_value < 1e-30


def test_too_many_is_poissons_tail():
  assert chance.too_many(0, 0.0) == 1.0
  assert chance.too_many(1, 0.0) == 0.0
  assert chance.too_many(1, 0.01) == pytest.approx(1 - np.exp(-0.01), rel=1e-4)
  assert chance.too_many(30, 30.0) > 0.4
