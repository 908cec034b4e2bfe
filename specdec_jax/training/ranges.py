"""Checks of values that a user gives."""

import math
from collections.abc import Callable

from specdec_jax.sampling import is_integer


def integers(least: int, **values: int) -> None:
  """Checks that values are integers and large enough.

  Raises:
    ValueError: the first that is not, by its name.
  """
  for name, value in values.items():
    if not is_integer(value) or value < least:
      raise ValueError(
        f"{name}: expected an integer of at least {least}, got {value}"
      )


def numbers(
  expected: str, holds: Callable[[float], bool], **values: float
) -> None:
  """Checks that values are finite and in a range.

  Args:
    expected: the range in words.
    holds: whether a number is in it.
    **values: the values by name.

  Raises:
    ValueError: the first that is not, by its name.
  """
  for name, value in values.items():
    if not (math.isfinite(value) and holds(value)):
      raise ValueError(f"{name}: expected {expected}, got {value}")
