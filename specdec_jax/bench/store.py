"""A folder of results that an interrupted benchmark goes on with.

`header.json` says what was measured on what, `records.jsonl` holds what came
of it. Records are appended unit by unit, each in one piece; a unit that was cut
off is dropped and measured again.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from specdec_jax.bench.records import RunRecord, from_fields, to_fields

VERSION = 1
_HEADER, _RECORDS = "header.json", "records.jsonl"
# What may change while a benchmark goes on.
_FREE = ("begun", "commit", "note")


class Store:
  """Records, on disk if it has a folder.

  Attributes:
    header: what was measured on what; that of the folder, where there is one.
    records: all of them, in their order.
    units: the numbers of the units that are there.
  """

  def __init__(self, folder: Path | None, header: Mapping[str, Any]):
    """Opens a folder, or makes it.

    Args:
      folder: where records are kept; None keeps them in memory.
      header: what is measured on what.

    Raises:
      ValueError: the folder holds something else, or results of another
        version or of other settings; it says which.
      OSError: it cannot be read or written.
    """
    self.header: Mapping[str, Any] = {"format": VERSION, **header}
    self.records: list[RunRecord] = []
    self.units: set[int] = set()
    self._path: Path | None = None
    if folder is None:
      return
    if folder.exists() and not folder.is_dir():
      raise ValueError(f"{folder}: expected a folder, got a file")
    path = folder / _HEADER
    if path.exists():
      self.header = read_header(folder)
      _check_same(folder, self.header, {"format": VERSION, **header})
    elif folder.is_dir() and any(folder.iterdir()):
      raise ValueError(
        f"{folder}: expected a folder of results or an empty one, found other "
        "files; give another folder"
      )
    else:
      folder.mkdir(parents=True, exist_ok=True)
      _write(path, json.dumps(self.header, indent=2) + "\n")
    self._path = folder / _RECORDS
    self._read(self._path)

  def _read(self, path: Path) -> None:
    data = path.read_bytes() if path.exists() else b""
    whole = 0
    for unit, records, end in _units(path, data):
      self.units.add(unit)
      self.records += records
      whole = end
    if whole < len(data):
      os.truncate(path, whole)

  def append(self, unit: int, records: Sequence[RunRecord]) -> None:
    """Adds what was measured of a unit, all of it."""
    self.units.add(unit)
    self.records += records
    if self._path is None:
      return
    lines = (
      json.dumps(
        {"unit": unit, "left": len(records) - i, **to_fields(record)},
        allow_nan=False,
      )
      for i, record in enumerate(records, 1)
    )
    with open(self._path, "ab") as file:
      file.write("".join(f"{line}\n" for line in lines).encode())
      file.flush()
      os.fsync(file.fileno())


def read_header(folder: Path) -> dict[str, Any]:
  """The header of a folder of results.

  Raises:
    ValueError: there is none, or it is of another version.
    OSError: it cannot be read.
  """
  path = folder / _HEADER
  if not path.exists():
    raise ValueError(f"{folder}: expected a folder of results, found no header")
  try:
    header = json.loads(path.read_text())
    version = header["format"]
  except (ValueError, KeyError, TypeError, RecursionError):
    raise ValueError(f"{path}: not a header of results") from None
  if version != VERSION:
    raise ValueError(
      f"{folder}: results of format {version}, but this version of specdec "
      f"reads and writes format {VERSION}; give another folder, or use the "
      "version that made it"
    )
  return header


def load(folder: Path) -> tuple[dict[str, Any], list[RunRecord]]:
  """Header and records of a folder of results, as far as they are there.

  Raises:
    ValueError: there are none, or of another version.
    OSError: they cannot be read.
  """
  header, path = read_header(folder), folder / _RECORDS
  data = path.read_bytes() if path.exists() else b""
  return header, [it for _, some, _ in _units(path, data) for it in some]


def _units(
  path: Path, data: bytes
) -> Iterator[tuple[int, list[RunRecord], int]]:
  """The whole units of a file: number, records, and where each ends."""
  records: list[RunRecord] = []
  end = 0
  for number, line in enumerate(data.splitlines(keepends=True), 1):
    end += len(line)
    if not line.endswith(b"\n"):
      return  # cut off in the middle
    try:
      fields = json.loads(line)
      unit, left = fields.pop("unit"), fields.pop("left")
      records.append(from_fields(fields))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
      raise ValueError(
        f"{path}, line {number}: not a record of this format; give another "
        "folder"
      ) from None
    if not left:
      yield unit, records, end
      records = []


def _check_same(
  folder: Path, theirs: Mapping[str, Any], ours: Mapping[str, Any]
) -> None:
  """Refuses to add to results of something else."""
  found = [
    f"{name} was {json.dumps(a)}, is {json.dumps(b)}"
    for name, a, b in _differences("", theirs, json.loads(json.dumps(ours)))
    if name not in _FREE
  ]
  if found:
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    raise ValueError(
      f"{folder}: results of another benchmark: {'; '.join(found[:3])}{more}; "
      "give the same command, or another folder"
    )


def _differences(name: str, a: Any, b: Any) -> Iterator[tuple[str, Any, Any]]:
  """Where two trees of JSON differ, by dotted names."""
  if isinstance(a, Mapping) and isinstance(b, Mapping):
    for key in dict.fromkeys((*a, *b)):
      inner = f"{name}.{key}" if name else key
      yield from _differences(inner, a.get(key), b.get(key))
  elif a != b:
    yield name, a, b


def _write(path: Path, text: str) -> None:
  """Writes a file whole or not at all."""
  begun = path.with_name(path.name + ".part")
  with open(begun, "w") as file:
    file.write(text)
    file.flush()
    os.fsync(file.fileno())
  begun.replace(path)
