"""What chance alone may do: tests that state how often they are wrong.

Each gives a p-value: how probable what was seen, or worse, is for a right
sampler. Bounds hold for any number of samples; only the chi-square test and
the width of the interval lean on many of them.
"""

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

import jax
import numpy as np

_LEAST_EXPECTED = 20  # where the chi-square approximation is good
Outcomes = Sequence[Hashable]


class Comparison(NamedTuple):
  """Two samples side by side.

  Attributes:
    p_value: of the two-sample chi-square test.
    cells: how many outcomes it told apart, the rare ones pooled.
    variation: the total variation between both samples, after pooling.
    low: the least total variation between the laws that agrees with it.
    high: the greatest.
  """

  p_value: float
  cells: int
  variation: float
  low: float
  high: float


def compare(
  pairs: Iterable[tuple[Outcomes, Outcomes]], level: float
) -> Comparison:
  """Whether two samplers have the same law, in each of several places.

  Outcomes of which fewer than 20 are expected are pooled. The statistic and
  its degrees of freedom are summed over the places, the total variation is
  their mean.

  Args:
    pairs: samples of both, equally many, place by place.
    level: how probable it is at most that the laws' total variation lies
      outside [low, high].
  """
  statistic, freedom, cells = 0.0, 0, 0
  variations, blurs, sizes = [], [], []
  for ours, theirs in pairs:
    counts = _pooled(Counter(ours), Counter(theirs))
    total = counts.sum(axis=1)
    statistic += float((np.diff(counts)[:, 0] ** 2 / total).sum())
    freedom += len(counts) - 1
    cells += len(counts)
    size = len(ours)
    variations.append(float(abs(np.diff(counts)).sum()) / 2 / size)
    # E|x| <= sqrt(Var x) of each difference of shares x.
    share = total / total.sum()
    blurs.append(float(np.sqrt(share * (1 - share) * 2 / size).sum()) / 2)
    sizes.append(size)
  # Another sample moves the mean by 1/size of a place (McDiarmid, 1989).
  places = len(sizes)
  swing = sum(2 / size for size in sizes) / places**2
  slack = math.sqrt(swing * math.log(2 / level) / 2)
  variation = sum(variations) / places
  p_value = 1.0
  if freedom:
    p_value = float(jax.scipy.special.gammaincc(freedom / 2, statistic / 2))
  return Comparison(
    p_value,
    cells,
    variation,
    max(variation - sum(blurs) / places - slack, 0.0),
    min(variation + slack, 1.0),
  )


def _pooled(ours: Counter[Hashable], theirs: Counter[Hashable]) -> np.ndarray:
  """Counts of each outcome in both, `[cells, 2]`, the rare ones in one."""
  counts = np.array([[ours[x], theirs[x]] for x in ours | theirs], float)
  common = counts.sum(axis=1) >= 2 * _LEAST_EXPECTED
  rare = counts[~common].sum(axis=0, keepdims=True)
  # What is rare even in sum would make a cell of its own that is too small.
  large = counts[common]
  if rare.sum() >= 2 * _LEAST_EXPECTED or not len(large):
    return np.concatenate([large, rare])
  if rare.sum():
    large[large.sum(axis=1).argmin()] += rare[0]
  return large


def drift(steps: np.ndarray, variances: np.ndarray) -> tuple[float, float]:
  """Whether a martingale strays: its z and its p-value, two-sided.

  Freedman's inequality (1975) bounds the p-value for steps of at most 1,
  however few there are: 2 exp(-s² / (2 (v + |s| / 3))).

  Args:
    steps: each of mean 0 given those before it.
    variances: of each, given those before it.
  """
  total, variance = float(steps.sum()), float(variances.sum())
  if total == 0:
    return 0.0, 1.0
  z = total / math.sqrt(variance) if variance else math.copysign(99, total)
  bound = 2 * math.exp(-(total**2) / 2 / (variance + abs(total) / 3))
  return z, min(bound, 1.0)


def too_many(count: int, expected: float) -> float:
  """The p-value of `count` rare events where `expected` are, by Poisson's law.

  A sum of independent events has no heavier tail (Hoeffding, 1956).
  """
  if count == 0:
    return 1.0
  return float(jax.scipy.special.gammainc(float(count), expected))
