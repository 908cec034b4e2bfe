"""Files that are whole or not there, and errors that say which file it was."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
  """Errors of the file system that name no file name this one."""
  try:
    yield
  except OSError as error:
    if error.filename is None:  # so where a write or a flush fails
      error.filename = os.fspath(path)
    raise


def write_whole(path: Path, content: bytes) -> None:
  """Writes a file at once: whatever happens, there is the old or the new one.

  Raises:
    OSError: it cannot be written; the old one is still there.
  """
  partial = path.with_name(f"{path.name}.partial")
  with naming(path):
    try:
      partial.write_bytes(content)
      partial.replace(path)
    finally:
      partial.unlink(missing_ok=True)
