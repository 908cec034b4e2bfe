"""What a training tells of itself: a JSONL file, a line a step and more."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


class MetricsFile:
  """One JSON object a line, each with a "step"."""

  def __init__(self, path: Path, step: int):
    """Opens the file; what it tells of later steps is forgotten.

    Args:
      path: where it is.
      step: the step that the training goes on from.
    """
    self._path = path
    kept = [line for line in self.lines() if line["step"] <= step]
    partial = path.with_suffix(".partial")
    partial.write_text("".join(map(_line, kept)), encoding="utf-8")
    partial.replace(path)
    self._file = path.open("a", encoding="utf-8")

  def __enter__(self) -> "MetricsFile":
    return self

  def __exit__(self, *_: object) -> None:
    self._file.close()

  def write(self, step: int, values: Mapping[str, Any]) -> None:
    """Adds a line."""
    self._file.write(_line({"step": step, **values}))
    self._file.flush()

  def lines(self) -> Iterator[dict[str, Any]]:
    """All that was written; a line that a kill cut off is left out."""
    if not self._path.is_file():
      return
    for line in self._path.read_text(encoding="utf-8").splitlines(True):
      if line.endswith("\n"):
        yield json.loads(line)


def _line(values: Mapping[str, Any]) -> str:
  return json.dumps(values) + "\n"
