"""Reads prompts and what they are about, from files of several formats."""

import dataclasses
import json
import reprlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

_JSON_LINES = (".jsonl", ".ndjson", ".json")


@dataclasses.dataclass(frozen=True)
class Item:
  """A prompt of a workload.

  Attributes:
    where: what messages call it, `prompts.jsonl, line 3` for example.
    name: what it is called in its file, `HumanEval/2`; else its line.
    task: what it is about; the name of the file where that does not tell.
    text: the prompt.
  """

  where: str
  name: str
  task: str
  text: str


def parse(data: bytes, source: str) -> list[Item]:
  """The prompts of a file, at least one.

  A file of JSON lines has an object a line, with

  * `prompt`, text, and maybe `task`, text: our own;
  * `task_id` and `prompt`: HumanEval; the task is what stands before the /;
  * `question_id`, `category` and `turns`, a list of text, of which the first
    is taken: Spec-Bench and MT-Bench.

  It is known by its name (.jsonl, .ndjson, .json) or by a first line that is
  an object. Any other file is plain text with a prompt a line. Blank lines are
  skipped.

  Args:
    data: what is in it.
    source: its path, or what else it shall be called.

  Raises:
    ValueError: it names the file and the line, and says what was expected.
  """
  # Split by newlines only: JSON strings may hold other separators of lines.
  lines = [
    (number, line.rstrip("\r"))
    for number, line in enumerate(decode(data, source).split("\n"), 1)
    if line.strip()
  ]
  if not lines:
    raise ValueError(f"{source}: expected at least one prompt, got none")
  path = Path(source)
  is_json = path.suffix.lower() in _JSON_LINES or _is_object(lines[0][1])
  items = []
  for number, line in lines:
    where = f"{source}, line {number}"
    fields = _fields(line, where) if is_json else {"prompt": line}
    text = check_text(where, _prompt_of(fields, where))
    name, task = _labels(fields, where)
    items.append(Item(where, name or f"line {number}", task or path.stem, text))
  return items


def spread(items: Sequence[Item], limit: int | None) -> list[Item]:
  """At most `limit` prompts, taken evenly from all tasks and all of each.

  Which they are depends on the workload and the limit alone. Tasks with few
  prompts give what they have, the others make up for it.
  """
  if limit is None or limit >= len(items):
    return list(items)
  found = _by_task(items)
  shares = dict.fromkeys(found, 0)
  for _ in range(limit):
    not_used_up = [task for task in found if shares[task] < len(found[task])]
    shares[min(not_used_up, key=shares.__getitem__)] += 1
  chosen = sorted(
    places[i * len(places) // shares[task]]
    for task, places in found.items()
    for i in range(shares[task])
  )
  return [items[place] for place in chosen]


def batches(items: Sequence[Item], size: int) -> Iterator[list[int]]:
  """Which prompts run side by side: at most `size`, of one task."""
  for places in _by_task(items).values():
    for begin in range(0, len(places), size):
      yield places[begin : begin + size]


def tasks(items: Sequence[Item]) -> dict[str, int]:
  """How many prompts each task has."""
  return {task: len(places) for task, places in _by_task(items).items()}


def _by_task(items: Sequence[Item]) -> dict[str, list[int]]:
  """The places of the prompts of each task."""
  places: dict[str, list[int]] = {}
  for place, item in enumerate(items):
    places.setdefault(item.task, []).append(place)
  return places


def decode(data: bytes, source: str) -> str:
  """What these bytes are as text.

  Raises:
    ValueError: they are none; it names the line.
  """
  try:
    return data.decode("utf-8-sig")
  except UnicodeDecodeError as error:
    line = data.count(b"\n", 0, error.start) + 1
    raise ValueError(
      f"{source}, line {line}: not UTF-8 (byte 0x{data[error.start]:02x})"
    ) from None


def check_text(where: str, text: Any) -> str:
  """A prompt, if it is one.

  Raises:
    ValueError: it is no text, empty, or cannot be encoded.
  """
  if not isinstance(text, str):
    raise ValueError(f"{where}: expected the prompt as text, got {_kind(text)}")
  if not text:
    raise ValueError(f"{where}: expected a prompt, got an empty one")
  try:
    text.encode()
  except UnicodeEncodeError:
    raise ValueError(
      f"{where}: the prompt holds half of a character (a lone surrogate)"
    ) from None
  return text


def _is_object(line: str) -> bool:
  try:
    return isinstance(json.loads(line), dict)
  except (ValueError, RecursionError):
    return False


def _fields(line: str, where: str) -> dict[str, Any]:
  try:
    fields = json.loads(line)
  except json.JSONDecodeError as error:
    raise ValueError(
      f"{where}: not JSON: {error.msg} (column {error.colno})"
    ) from None
  except (ValueError, RecursionError) as error:
    raise ValueError(f"{where}: not JSON: {error}") from None
  if not isinstance(fields, dict):
    raise ValueError(
      f"{where}: expected an object with `prompt` or `turns`, got "
      f"{_kind(fields)}"
    )
  return fields


def _prompt_of(fields: dict[str, Any], where: str) -> Any:
  if "prompt" in fields:
    return fields["prompt"]
  if "turns" not in fields:
    keys = ", ".join(map(reprlib.repr, list(fields)[:5])) or "none"
    raise ValueError(
      f"{where}: expected a key `prompt` or `turns`, got {keys}; known formats "
      "are HumanEval (`task_id`, `prompt`), Spec-Bench (`question_id`, "
      "`category`, `turns`) and `prompt` with or without `task`"
    )
  turns = fields["turns"]
  if not isinstance(turns, list) or not turns:
    raise ValueError(
      f"{where}: `turns`: expected a list of at least one text, got "
      f"{_kind(turns)}"
    )
  return turns[0]


def _labels(fields: dict[str, Any], where: str) -> tuple[str, str]:
  """Name and task; "" where the format does not tell."""
  for key in ("task", "task_id", "category"):
    if key in fields and not (isinstance(fields[key], str) and fields[key]):
      raise ValueError(
        f"{where}: `{key}`: expected text, got {_kind(fields[key])}"
      )
  name = str(fields.get("task_id", fields.get("question_id", "")))
  task = fields.get("task", fields.get("category"))
  if not task and "/" in name:
    task = name.partition("/")[0]
  return name, task or ""


def _kind(value: Any) -> str:
  """What JSON calls it."""
  if value is None:
    return "null"
  if isinstance(value, bool):
    return "a boolean"
  if isinstance(value, (int, float)):
    return "a number"
  if isinstance(value, str):
    return "text" if value else "an empty text"
  if isinstance(value, list):
    return "a list" if value else "an empty list"
  return "an object"
