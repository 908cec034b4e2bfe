"""Reads prompts from a file or from standard input."""

import dataclasses
import sys
from typing import BinaryIO

from specdec_jax.bench import workload
from specdec_jax.bench.workload import Item

STDIN = "-"
_MOST_BYTES = 2**28


@dataclasses.dataclass(frozen=True)
class NamedPrompt:
  """A prompt and where it came from.

  Attributes:
    name: what messages call it, `prompts.jsonl, line 3` for example.
    text: the prompt.
  """

  name: str
  text: str


def one_prompt(text: str) -> NamedPrompt:
  """The prompt given as a flag; "-" reads it from standard input.

  Nothing is dropped: to a model, a newline at the end is part of the prompt.

  Raises:
    ValueError: it is empty, or not text.
  """
  if text == STDIN:
    text = workload.decode(_read(STDIN), "standard input")
  return NamedPrompt("prompt", workload.check_text("prompt", text))


def read(path: str) -> list[NamedPrompt]:
  """The prompts of a file, at least one; see `workload.parse`.

  Args:
    path: of the file; "-" is standard input.

  Raises:
    ValueError: it names the file and the line.
    OSError: the file cannot be read.
  """
  return [NamedPrompt(item.where, item.text) for item in read_items(path)]


def read_items(path: str) -> list[Item]:
  """The same with their tasks and names."""
  name = "standard input" if path == STDIN else path
  return workload.parse(_read(path), name)


def _read(path: str) -> bytes:
  if path == STDIN:
    return _all_of(sys.stdin.buffer, "standard input")
  if "\0" in path:
    raise ValueError(f"{path}: no such file")
  with open(path, "rb") as file:
    return _all_of(file, path)


def _all_of(file: BinaryIO, name: str) -> bytes:
  """What is in a file, unless it has no end, as /dev/zero."""
  data = file.read(_MOST_BYTES + 1)
  if len(data) > _MOST_BYTES:
    raise ValueError(f"{name}: more than {_MOST_BYTES >> 20} MiB of prompts")
  return data
