"""What a training tells of itself: a JSONL file, a line a step and more."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from specdec_jax.sampling import is_integer
from specdec_jax.training.files import naming, write_whole


class MetricsFile:
  """One JSON object a line, each with a "step"."""

  def __init__(self, path: Path, step: int):
    """Opens the file; what it tells of later steps is forgotten.

    Args:
      path: where it is.
      step: the step that the training goes on from.

    Raises:
      ValueError: it holds something else.
      OSError: it cannot be written.
    """
    self._path = path
    kept = [line for line in self.lines() if line["step"] <= step]
    write_whole(path, b"".join(map(_line, kept)))
    # Not buffered: what the disk had no room for is not tried again when the
    # file is closed.
    self._file = path.open("ab", buffering=0)

  def __enter__(self) -> "MetricsFile":
    return self

  def __exit__(self, *_: object) -> None:
    self._file.close()

  def write(self, step: int, values: Mapping[str, Any]) -> None:
    """Adds a line.

    Raises:
      OSError: it cannot be written, or not the whole of it.
    """
    rest = _line({"step": step, **values})
    with naming(self._path):
      while rest:
        rest = rest[self._file.write(rest) :]

  def lines(self) -> Iterator[dict[str, Any]]:
    """All that was written; a line that a kill cut off is left out.

    Raises:
      ValueError: a line is none of ours.
    """
    if not self._path.is_file():
      return
    *lines, _ = self._path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
      try:
        values = json.loads(line)
      except ValueError:
        values = None
      if not _is_ours(values):
        raise ValueError(
          f"{self._path}, line {number}: expected a JSON object with a step "
          "and its loss or held_out; mend the line, or train in another folder"
        )
      yield values


def _is_ours(values: Any) -> bool:
  return (
    isinstance(values, dict)
    and is_integer(values.get("step"))
    and ("loss" in values or "held_out" in values)
  )


def _line(values: Mapping[str, Any]) -> bytes:
  return json.dumps(values).encode() + b"\n"
