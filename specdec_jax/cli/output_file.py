"""A file of results that a run killed in its middle goes on with."""

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from specdec_jax.cli.prompts_file import NamedPrompt

_BEGIN = b'{"prompt": '


class OutputFile:
  """JSON lines, one for each sample, in their order.

  Each line holds what it was made with, as a hash. So the file is always the
  beginning of a run's whole output, and a later run of the same settings and
  prompts writes what is missing, nothing twice.

  Attributes:
    count: how many samples the file holds.
  """

  def __init__(
    self,
    path: str,
    prompts: Sequence[NamedPrompt],
    settings: Mapping[str, Any],
  ):
    """Reads what is there.

    Args:
      path: of the file; made if it is not there.
      prompts: of all samples.
      settings: what the text depends on, besides.

    Raises:
      ValueError: the file is of another run, or no such file at all.
      OSError: it cannot be read.
    """
    self._path = Path(path)
    self._prompts = prompts
    told = json.dumps(settings, sort_keys=True, default=str)
    self._hash = hashlib.sha256(told.encode()).hexdigest()[:16]
    self._size, self.count = 0, 0
    if not self._path.parent.is_dir():
      raise ValueError(f"--output: no such folder: {self._path.parent}")
    if self._path.exists():
      self._read(self._path.read_bytes())

  def _read(self, data: bytes) -> None:
    # What follows the last newline was cut off in the middle.
    for line in data.splitlines(keepends=True):
      if not line.endswith(b"\n"):
        break
      self._check(line)
      self._size += len(line)
      self.count += 1
    rest = data[self._size :]
    begin = rest[: len(_BEGIN)]
    if begin != _BEGIN[: len(begin)] or _is_whole(rest):
      raise self._foreign("is not a line of results")

  def _check(self, line: bytes) -> None:
    try:
      fields = json.loads(line)
      run, prompt = fields["run"], fields["prompt"]
    except (ValueError, KeyError, TypeError, RecursionError):
      raise self._foreign("is not a line of results") from None
    if self.count == len(self._prompts):
      raise self._foreign(
        f"is one too many for {len(self._prompts)} results of this run"
      )
    if prompt != self._prompts[self.count].text:
      raise self._foreign("is of another prompt")
    if run != self._hash:
      raise self._foreign("was made with other models or settings")

  def _foreign(self, reason: str) -> ValueError:
    return ValueError(
      f"--output: {self._path}, line {self.count + 1}, {reason}; give the "
      "settings and prompts that it was begun with, or another file"
    )

  @contextlib.contextmanager
  def appending(self) -> Iterator["_Lines"]:
    """Opens the file behind what it holds."""
    mode = "r+b" if self._path.exists() else "xb"
    with open(self._path, mode) as file:
      file.truncate(self._size)
      file.seek(self._size)
      yield _Lines(file, self._hash)


class FileElsewhere:
  """Stands for a file of results that another process writes.

  Attributes:
    count: how many samples that holds.
  """

  def __init__(self, count: int):
    self.count = count

  @contextlib.contextmanager
  def appending(self) -> Iterator["FileElsewhere"]:
    yield self

  def write(self, fields: Mapping[str, Any]) -> None:
    """Leaves it to the other process."""


def _is_whole(line: bytes) -> bool:
  """Whether this is an object of JSON, and none of a run."""
  try:
    return "run" not in json.loads(line)
  except (ValueError, TypeError, RecursionError):
    return False


class _Lines:
  """Writes lines, each at once as a whole."""

  def __init__(self, file: Any, run: str):
    self._file = file
    self._run = run

  def write(self, fields: Mapping[str, Any]) -> None:
    """Appends the results of a sample."""
    line = json.dumps({**fields, "run": self._run}, allow_nan=False)
    self._file.write(line.encode() + b"\n")
    self._file.flush()
