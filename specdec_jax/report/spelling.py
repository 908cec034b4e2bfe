"""What each token writes, half characters and invisible tokens among them."""

import dataclasses
from typing import Literal

from specdec_jax.loading.tokenizer import Tokenizer

Kind = Literal["text", "bytes", "name"]


@dataclasses.dataclass(frozen=True)
class Part:
  """A part of what a token writes.

  Attributes:
    kind: "text"; "bytes", written in hexadecimal, that are no character or not
      a whole one; or the "name" of a token without text.
    text: as it is shown.
  """

  kind: Kind
  text: str


@dataclasses.dataclass(frozen=True)
class Speller:
  """Tells what tokens write one by one, in any order.

  Attributes:
    tokenizer: of the tokens; None shows their ids.
  """

  tokenizer: Tokenizer | None

  def spell(self, token: int, before: bytes = b"") -> tuple[list[Part], bytes]:
    """What a token writes.

    Args:
      token: its id.
      before: the beginning of a character that the tokens before it left.

    Returns:
      Its parts, and the beginning of a character that it leaves. A character
      counts to the token that completes it, and what came before shows as
      bytes there.
    """
    if self.tokenizer is None:
      return [Part("name", str(token))], b""
    if token in self.tokenizer.special_ids:
      return [self._name(token)], b""
    try:
      written = self.tokenizer.token_bytes[token]
    except ValueError:  # it does not write bytes
      return [Part("text", self.tokenizer.decode([token]))], b""
    if not written:
      return [self._name(token)], before
    return _parts(before, written)

  def _name(self, token: int) -> Part:
    assert self.tokenizer is not None
    return Part("name", self.tokenizer.name(token) or f"#{token}")


def _parts(before: bytes, written: bytes) -> tuple[list[Part], bytes]:
  """Characters and loose bytes; of `before` only what becomes a character."""
  data, found = before + written, list[Part]()
  place, own = 0, len(before)

  def add_bytes(begin: int, end: int) -> None:
    if loose := data[max(begin, own) : end]:
      found.append(Part("bytes", loose.hex(" ").upper()))

  while place < len(data):
    try:
      found.append(Part("text", data[place:].decode()))
      break
    except UnicodeDecodeError as error:
      begin, end = place + error.start, place + error.end
      if begin > place:
        found.append(Part("text", data[place:begin].decode()))
      add_bytes(begin, end)
      if error.reason == "unexpected end of data":
        return found, data[begin:]
      place = end
  return found, b""
