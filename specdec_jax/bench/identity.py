"""Whether two texts are the same, and why they may not be."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from specdec_jax.models.language_model import LanguageModel

# Rounding of a sum over a model's width, relative to its logits: two units in
# the last place of bfloat16, and 2**8 of float32, whose sums are reordered.
_ROUNDING = {"bfloat16": 2.0**-6, "float32": 2.0**-15}


class Tie(NamedTuple):
  """How sure the target is of what follows some text.

  Attributes:
    gap: how far apart its two largest logits are.
    near: whether the tokens in question are both within rounding of the
      largest: either may come first.
  """

  gap: float
  near: bool


def first_difference(ours: Sequence[int], theirs: Sequence[int]) -> int | None:
  """The first place where two texts differ, as far as both go."""
  for place, (a, b) in enumerate(zip(ours, theirs, strict=False)):
    if a != b:
      return place
  return None


def tie(
  target: LanguageModel, context: Sequence[int], tokens: Sequence[int]
) -> Tie:
  """How close a decision of the target's is.

  Args:
    target: the model.
    context: the text so far.
    tokens: what different runs have put after it. That the two best are close
      excuses no other.
  """
  logits_V = target.logits(context, count=1)[-1]
  second, first = np.partition(logits_V, -2)[-2:]
  lower = min(logits_V[token] for token in tokens)
  scale = max(1.0, abs(float(first)))
  # Networks that are no transformer, as tests have, compute in float32.
  dtype = getattr(target.network, "dtype", "float32")
  near = float(first - lower) <= _ROUNDING[dtype] * scale
  return Tie(float(first - second), near)
