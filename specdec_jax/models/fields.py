"""Reads the fields of a config.json, and gathers what is wrong with them."""

import reprlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

_LARGEST = 2**31 - 1  # positions and sizes are 32-bit integers on the device
_REPR = reprlib.Repr()  # cuts what is long
_REPR.maxstring = _REPR.maxother = 60


class Fields:
  """Reads the fields of an object, each of the kind that is expected.

  What is missing or wrong is added to `faults` and read as nothing (0, "", ..),
  so that all faults are found at once. A field that is null is absent.
  """

  def __init__(
    self,
    values: Mapping[str, Any],
    faults: list[str],
    where: str = "",
    spellings: Mapping[str, str] | None = None,
  ):
    """Wraps an object.

    Args:
      values: the object.
      faults: where faults are added.
      where: what stands before a field's name in them.
      spellings: the usual name of a field -> how this object calls it.
    """
    self._values = {k: v for k, v in values.items() if v is not None}
    self._where = where
    self._spellings = spellings or {}
    self.faults = faults

  def _spelling(self, name: str) -> str:
    return self._spellings.get(name, name)

  def __contains__(self, name: str) -> bool:
    return self._spelling(name) in self._values

  def contradict(self, *names: str) -> bool:
    """Whether two spellings of a field are given, with unequal values."""
    first, *others = [self._values[n] for n in names if n in self] or [None]
    return any(other != first for other in others)

  def _get(
    self,
    name: str,
    default: Any,
    nothing: Any,
    fits: Callable[[Any], bool],
    expected: str,
  ) -> Any:
    name = self._spelling(name)
    if name not in self._values:
      if default is None:
        self.faults.append(f"{self._where}{name} is missing")
      return nothing if default is None else default
    value = self._values[name]
    if fits(value):
      return value
    self.refuse(name, expected)
    return nothing

  def refuse(self, name: str, expected: str) -> None:
    """Adds that the value of a field is not what was expected."""
    name = self._spelling(name)
    self.faults.append(
      f"{self._where}{name} is {short(self._values.get(name))}, "
      f"expected {expected}"
    )

  def integer(
    self, name: str, default: int | None = None, least: int = 1
  ) -> int:
    """An integer of at least `least`."""

    def fits(value: Any) -> bool:
      return type(value) is int and least <= value <= _LARGEST

    kind = "a positive integer" if least else "an integer of 0 or more"
    return self._get(name, default, 0, fits, f"{kind}, at most {_LARGEST}")

  def number(self, name: str, default: float | None = None) -> float:
    """A number above 0. float32 holds it, and its reciprocal as well."""

    def fits(value: Any) -> bool:
      return type(value) in (int, float) and 1e-30 <= value <= 1e30

    expected = "a positive finite number"
    return float(self._get(name, default, 0.0, fits, expected))

  def boolean(self, name: str, default: bool = False) -> bool:
    """True or false."""
    return self._get(
      name, default, False, lambda value: type(value) is bool, "true or false"
    )

  def choice(self, name: str, default: str, options: Collection[str]) -> str:
    """One of some words; "" if it is none of them."""

    def fits(value: Any) -> bool:
      return isinstance(value, str) and value in options

    expected = f"one of {', '.join(options)}"
    return self._get(name, default, "", fits, expected)

  def words(
    self, name: str, options: Collection[str] | None = None
  ) -> list[str]:
    """A list of strings, of some that may be if given; empty if absent."""

    def fits(value: Any) -> bool:
      return isinstance(value, list) and all(
        isinstance(word, str) and (options is None or word in options)
        for word in value
      )

    expected = "a list of " + (" or ".join(options) if options else "strings")
    return self._get(name, [], [], fits, expected)

  def fields(self, name: str) -> "Fields":
    """The fields of an object in this one; none if absent."""

    def fits(value: Any) -> bool:
      return isinstance(value, Mapping)

    values = self._get(name, {}, {}, fits, "an object")
    return Fields(values, self.faults, f"{self._where}{name}.")


def short(value: Any) -> str:
  """What a message says of a value, which may be long."""
  return _REPR.repr(value)
