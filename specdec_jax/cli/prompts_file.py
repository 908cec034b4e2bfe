"""Reads prompts from a file or from standard input."""

import dataclasses
import json
import reprlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

STDIN = "-"
_MOST_BYTES = 2**28
_JSON_LINES = (".jsonl", ".ndjson", ".json")


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
    text = _decode(_read(STDIN), "standard input")
  return _named("prompt", text)


def read(path: str) -> list[NamedPrompt]:
  """The prompts of a file, at least one.

  A file of JSON lines has an object a line, with `prompt` (text) or `turns`
  (a list of text, of which the first is taken). It is known by its name
  (.jsonl, .ndjson, .json) or by a first line that is an object. Any other
  file is plain text with a prompt a line. Blank lines are skipped.

  Args:
    path: of the file; "-" is standard input.

  Raises:
    ValueError: it names the file and the line.
    OSError: the file cannot be read.
  """
  name = "standard input" if path == STDIN else path
  # Split by newlines only: JSON strings may hold other separators of lines.
  lines = [
    (f"{name}, line {number}", line.rstrip("\r"))
    for number, line in enumerate(_decode(_read(path), name).split("\n"), 1)
    if line.strip()
  ]
  if not lines:
    raise ValueError(f"{name}: expected at least one prompt, got none")
  if Path(path).suffix.lower() in _JSON_LINES or _is_object(lines[0][1]):
    lines = list(_from_json(lines))
  return [_named(*line) for line in lines]


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


def _decode(data: bytes, name: str) -> str:
  try:
    return data.decode("utf-8-sig")
  except UnicodeDecodeError as error:
    line = data.count(b"\n", 0, error.start) + 1
    raise ValueError(
      f"{name}, line {line}: not UTF-8 (byte 0x{data[error.start]:02x})"
    ) from None


def _is_object(line: str) -> bool:
  try:
    return isinstance(json.loads(line), dict)
  except (ValueError, RecursionError):
    return False


def _from_json(lines: list[tuple[str, str]]) -> Iterator[tuple[str, Any]]:
  for name, line in lines:
    try:
      fields = json.loads(line)
    except json.JSONDecodeError as error:
      raise ValueError(
        f"{name}: not JSON: {error.msg} (column {error.colno})"
      ) from None
    except (ValueError, RecursionError) as error:
      raise ValueError(f"{name}: not JSON: {error}") from None
    yield name, _prompt_of(fields, name)


def _prompt_of(fields: Any, name: str) -> Any:
  if not isinstance(fields, dict):
    raise ValueError(
      f"{name}: expected an object with `prompt` or `turns`, got "
      f"{_kind(fields)}"
    )
  if "prompt" in fields:
    return fields["prompt"]
  if "turns" not in fields:
    keys = ", ".join(map(reprlib.repr, list(fields)[:5])) or "none"
    raise ValueError(f"{name}: expected a key `prompt` or `turns`, got {keys}")
  turns = fields["turns"]
  if not isinstance(turns, list) or not turns:
    raise ValueError(
      f"{name}: `turns`: expected a list of at least one text, got "
      f"{_kind(turns)}"
    )
  return turns[0]


def _named(name: str, text: Any) -> NamedPrompt:
  if not isinstance(text, str):
    raise ValueError(f"{name}: expected the prompt as text, got {_kind(text)}")
  if not text:
    raise ValueError(f"{name}: expected a prompt, got an empty one")
  try:
    text.encode()
  except UnicodeEncodeError:
    raise ValueError(
      f"{name}: the prompt holds half of a character (a lone surrogate)"
    ) from None
  return NamedPrompt(name, text)


def _kind(value: Any) -> str:
  """What JSON calls it."""
  if value is None:
    return "null"
  if isinstance(value, bool):
    return "a boolean"
  if isinstance(value, (int, float)):
    return "a number"
  if isinstance(value, str):
    return "text"
  if isinstance(value, list):
    return "a list" if value else "an empty list"
  return "an object"
