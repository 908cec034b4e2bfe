"""The text of a row that a stop string may end, on the host."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from specdec_jax.stopping.automaton import StopStrings


class Place(NamedTuple):
  """A place in the bytes of some tokens: in front of a byte of a token."""

  token: int
  offset: int


class Decodes(Protocol):
  """The part of a tokenizer that is needed here."""

  @property
  def token_bytes(self) -> tuple[bytes, ...]: ...

  def decode(self, ids: Sequence[int]) -> str: ...


class Streams(Protocol):
  """Gives out the text of each token, as far as it is certain."""

  def push(self, ids: Sequence[int]) -> list[str]: ...


class _Scan:
  """Follows the automaton through tokens, byte by byte."""

  def __init__(
    self, stops: StopStrings, root: int, token_bytes: Sequence[bytes]
  ):
    self._stops = stops
    self._token_bytes = token_bytes
    self._state = root
    self._starts: list[int] = []  # of each token, in bytes
    self._size = 0

  def push(self, token: int) -> int | None:
    """Takes in a token; the byte at which a match begins that ends in it."""
    self._starts.append(self._size)
    begin = None
    for byte in self._token_bytes[token]:
      self._state = int(self._stops.byte_table[self._state, byte])
      self._size += 1
      length = int(self._stops.length_A[self._state])
      if length and begin is None:
        begin = self._size - length
    return begin

  @property
  def open(self) -> int:
    """The byte at which what may become a match begins."""
    return self._size - int(self._stops.depth_A[self._state])

  def place(self, byte: int) -> Place:
    """The place in front of this byte."""
    token = len(self._starts) - 1
    while token > 0 and self._starts[token] > byte:
      token -= 1
    return Place(token, byte - self._starts[token])


def text_before(
  tokenizer: Decodes,
  ids: Sequence[int],
  stops: StopStrings,
  root: int,
  early: int = 0,
) -> str:
  """The text of tokens up to the first stop string in them.

  The first to be complete counts, and of those complete at the same byte the
  longest. Without any it is the whole text.

  Args:
    tokenizer: what the tokens are of.
    ids: generated tokens.
    stops: the automaton.
    root: its first state for this row.
    early: how many tokens come too early to complete a stop string.
  """
  scan = _Scan(stops, root, tokenizer.token_bytes)
  for index, token in enumerate(ids):
    begin = scan.push(token)
    if begin is not None and index >= early:
      return _text_up_to(tokenizer, ids, scan.place(begin))
  return tokenizer.decode(ids)


def _text_up_to(tokenizer: Decodes, ids: Sequence[int], place: Place) -> str:
  if place.offset == 0:
    return tokenizer.decode(ids[: place.token])
  text = tokenizer.decode(ids[: place.token + 1])
  rest = tokenizer.token_bytes[ids[place.token]][place.offset :]
  return text[: len(text) - len(rest.decode(errors="replace"))]


class StoppedText:
  """Streams text, and holds back what may become a stop string.

  The pieces, `flush` included, add up to `text_before` of all tokens.
  """

  def __init__(
    self,
    tokenizer: Decodes,
    stream: Streams,
    stops: StopStrings,
    root: int,
    early: int = 0,
  ):
    """Starts at the first generated token; arguments as of `text_before`."""
    self._tokenizer = tokenizer
    self._stream = stream
    self._arguments = (stops, root, early)
    self._scan = _Scan(stops, root, tokenizer.token_bytes)
    self._ids: list[int] = []
    self._text = ""
    self._ends: list[int] = []  # of each token's text, in characters
    self._given = 0

  def push(self, ids: Sequence[int]) -> list[str]:
    """One piece for each token: the text that it sets free."""
    return [self._push(int(token)) for token in ids]

  def flush(self) -> str:
    """What is still held back, up to the stop string if there is one."""
    text = text_before(self._tokenizer, self._ids, *self._arguments)
    rest, self._given = text[self._given :], len(text)
    return rest

  def _push(self, token: int) -> str:
    self._ids.append(token)
    (piece,) = self._stream.push([token])
    self._text += piece
    self._ends.append(len(self._text))
    begin = self._scan.push(token)
    if begin is None or len(self._ids) <= self._arguments[-1]:
      begin = self._scan.open
    index, offset = self._scan.place(begin)
    written = self._tokenizer.token_bytes[self._ids[index]]
    # A half character behind the place is held back by the stream itself.
    behind = len(written[offset:].decode(errors="ignore"))
    free = max(self._ends[index] - behind, self._given)
    freed, self._given = self._text[self._given : free], free
    return freed
