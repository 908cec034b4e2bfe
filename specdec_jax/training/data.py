"""Texts as rows of tokens: read, tokenised, packed, and put in order."""

import dataclasses
import functools
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import tqdm

from specdec_jax.loading.tokenizer import Tokenizer
from specdec_jax.models.transformer import Params
from specdec_jax.training import ranges

# What is read of a folder.
_ENDINGS = (".jsonl", ".md", ".py", ".txt")
# Of the documents, where no others are held out.
_HELD_OUT = 50


def read_texts(paths: Sequence[str]) -> list[str]:
  """The documents of files and folders, in the order of their names.

  A .jsonl file has an object with a field "text" in each line; any other file
  is one document. Of a folder all .jsonl, .md, .py and .txt files are read, in
  folders of it as well.

  Raises:
    ValueError: a path is not there, a file cannot be read, or none has text.
  """
  texts = []
  for path in paths:
    files = _files(Path(path).expanduser())
    texts += [text for file in files for text in _documents(file)]
  if not any(texts):
    raise ValueError(f"no text in {', '.join(paths)}")
  return texts


def _files(path: Path) -> list[Path]:
  if path.is_file():
    return [path]
  if not path.is_dir():
    raise ValueError(f"no such file or folder: {path}")
  files = sorted(
    file
    for file in path.rglob("*")
    if file.suffix in _ENDINGS and file.is_file()
  )
  if not files:
    raise ValueError(
      f"no data in {path}: expected {', '.join(_ENDINGS)} files, found none"
    )
  return files


def _documents(file: Path) -> Iterator[str]:
  try:
    content = file.read_text(encoding="utf-8")
  except UnicodeDecodeError as error:
    raise ValueError(f"{file} is not UTF-8: {error}") from error
  if file.suffix != ".jsonl":
    yield content
    return
  # Not splitlines: JSON may have other separators of lines in its strings.
  for number, line in enumerate(content.split("\n"), 1):
    if line.strip():
      yield _text_of(line, f"{file}, line {number}")


def _text_of(line: str, where: str) -> str:
  try:
    record = json.loads(line)
  except (ValueError, RecursionError) as error:
    raise ValueError(f"{where} is not JSON: {error}") from error
  text = record.get("text") if isinstance(record, dict) else None
  if not isinstance(text, str):
    raise ValueError(
      f'{where}: expected an object with a field "text" that is a string'
    )
  try:
    text.encode()
  except UnicodeEncodeError as error:
    raise ValueError(
      f"{where}: the text has half a surrogate pair, which is no character"
    ) from error
  return text


def hold_out(texts: Sequence[str]) -> tuple[list[str], list[str]]:
  """Training and held-out documents: every fiftieth is held out.

  Raises:
    ValueError: there are too few documents to spare any.
  """
  if len(texts) < 2:
    raise ValueError(
      "expected several documents, to hold some out, got one; name held-out "
      "data of their own"
    )
  every = min(_HELD_OUT, len(texts))
  held_out = [text for i, text in enumerate(texts) if i % every == every - 1]
  kept = [text for i, text in enumerate(texts) if i % every != every - 1]
  return kept, held_out


def tokenize(
  texts: Sequence[str], tokenizer: Tokenizer, name: str
) -> Iterator[np.ndarray]:
  """The tokens of each document, int32; its end is not marked.

  Args:
    texts: the documents.
    tokenizer: reads them.
    name: what the progress bar calls them.
  """
  for text in tqdm.tqdm(
    texts,
    desc=f"Reading {name}",
    unit="texts",
    disable=not sys.stderr.isatty(),
    file=sys.stderr,
  ):
    yield np.array(tokenizer.encode(text), np.int32)


@dataclasses.dataclass(frozen=True)
class PackedTexts:
  """Documents end to end, each with its end-of-sequence token, in rows.

  Attributes:
    row_NT: rows of sequence_length + 1 tokens. The last one of a row is the
      first of the next, so that each token but the very first is predicted
      once. What does not fill a row at the end is left out.
    bytes_per_token: UTF-8 bytes of the documents for each of their tokens.
  """

  row_NT: np.ndarray
  bytes_per_token: float

  @classmethod
  def of(
    cls,
    texts: Sequence[str],
    tokenizer: Tokenizer,
    eos_id: int,
    sequence_length: int,
    name: str,
  ) -> "PackedTexts":
    """Packs documents.

    Args:
      texts: the documents.
      tokenizer: reads them.
      eos_id: what stands between them.
      sequence_length: tokens of a row, the one more not counted.
      name: what the progress bar and errors call them.

    Raises:
      ValueError: they do not fill one row, or it has no length.
    """
    ranges.integers(1, sequence_length=sequence_length)
    tokens = np.concatenate(
      [np.append(t, np.int32(eos_id)) for t in tokenize(texts, tokenizer, name)]
    )
    count = (len(tokens) - 1) // sequence_length
    if not count:
      raise ValueError(
        f"{name}: expected {sequence_length + 1} tokens at least, to fill one "
        f"row, got {len(tokens)}"
      )
    size = sum(len(text.encode()) for text in texts)
    rows = np.lib.stride_tricks.sliding_window_view(tokens, sequence_length + 1)
    return cls(rows[::sequence_length], size / len(tokens))

  def batch(self, step: int, size: int, seed: int) -> np.ndarray:
    """The rows of a step, `[size, T + 1]`: a function of step and seed alone.

    Each epoch goes through all rows in an order of its own.
    """
    count = len(self.row_NT)
    wanted = np.arange(step * size, (step + 1) * size)
    rows = [_order(seed, i // count, count)[i % count] for i in wanted.tolist()]
    return self.row_NT[rows]


@functools.lru_cache(maxsize=2)  # a step may lie in two epochs
def _order(seed: int, epoch: int, count: int) -> np.ndarray:
  """The order of an epoch's rows."""
  return np.random.default_rng((seed, epoch)).permutation(count)


def prompt_length(length: int) -> int:
  """How many of a row's tokens are the prompt where a decoder goes on."""
  return max(length // 4, 1)


class Batches(Protocol):
  """What a training learns from, step by step."""

  def __call__(
    self, step: int, params: Params
  ) -> tuple[np.ndarray, np.ndarray]:
    """The batch of a step: the same for the same step and weights.

    Args:
      step: its number, from 0.
      params: what the student's network reads before it.

    Returns:
      row_BT, rows of T + 1 tokens; and weight_BT, how much each of the T
      positions counts, where token i + 1 is predicted at position i.
    """
    ...


@dataclasses.dataclass(frozen=True)
class TextBatches:
  """Batches of texts as they are, of which every token counts.

  Attributes:
    texts: the texts.
    size: B.
    seed: of their order.
  """

  texts: PackedTexts
  size: int
  seed: int

  def __call__(
    self, step: int, params: Params
  ) -> tuple[np.ndarray, np.ndarray]:
    """The batch of a step, whatever the weights."""
    del params
    row_BT = self.texts.batch(step, self.size, self.seed)
    return row_BT, np.ones((self.size, row_BT.shape[1] - 1), np.float32)
