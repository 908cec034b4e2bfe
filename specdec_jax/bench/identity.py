"""Whether two texts are the same, and why they may not be."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from specdec_jax.models.language_model import LanguageModel

# Rounding of a sum over a model's width, relative to its logits: two units in
# the last place of bfloat16, and 2**8 of float32, whose sums are reordered.
_ROUNDING = {"bfloat16": 2.0**-6, "float32": 2.0**-15}


class Tie(NamedTuple):
  """The target's two most probable tokens after some text.

  Attributes:
    gap: how far apart their logits are.
    near: whether that is within rounding: either may come first.
  """

  gap: float
  near: bool


def first_difference(ours: Sequence[int], theirs: Sequence[int]) -> int | None:
  """The first place where two texts differ, as far as both go."""
  for place, (a, b) in enumerate(zip(ours, theirs, strict=False)):
    if a != b:
      return place
  return None


def tie(target: LanguageModel, tokens: Sequence[int]) -> Tie:
  """How close a decision of the target's is, after these tokens."""
  logits_V = target.logits(tokens, count=1)[-1]
  second, first = np.partition(logits_V, -2)[-2:]
  gap = float(first - second)
  scale = max(1.0, abs(float(first)))
  # Networks that are no transformer, as tests have, compute in float32.
  dtype = getattr(target.network, "dtype", "float32")
  return Tie(gap, not math.isnan(gap) and gap <= _ROUNDING[dtype] * scale)
