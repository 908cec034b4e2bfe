"""The sampling values that a model's author recommends."""

from collections.abc import Mapping
from typing import Any

_NUMBERS = ("temperature", "top_p", "min_p", "repetition_penalty")
_LARGEST = 2**31 - 1  # Python's integers may be too large for its own floats


def sampling_values(config: Mapping[str, Any]) -> dict[str, Any]:
  """Reads the values that `SamplingParams` knows.

  Args:
    config: the sampling values of generation_config.json.

  Returns:
    Fields of `SamplingParams`, only those that the file decides.
    `do_sample: false` is temperature 0, whatever the temperature beside it;
    `do_sample: true` without a temperature is temperature 1.

  Raises:
    ValueError: a value is not of its kind.
  """
  given = {name: value for name, value in config.items() if value is not None}
  values: dict[str, Any] = {}
  for name in (*_NUMBERS, "top_k"):
    if name in given:
      values[name] = _number(name, given[name], name == "top_k")
  if given.get("do_sample") is False:
    values["temperature"] = 0.0
  elif given.get("do_sample") is True:
    values.setdefault("temperature", 1.0)
  return values


def _number(name: str, value: Any, whole: bool) -> int | float:
  is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
  if not is_number or abs(value) > _LARGEST or (whole and value % 1 != 0):
    kind = "an integer" if whole else "a number"
    raise ValueError(
      f"generation_config.json: {name}: expected {kind}, got {value!r}"
    )
  return int(value) if whole else float(value)
