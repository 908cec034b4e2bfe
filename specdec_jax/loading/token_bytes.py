"""The bytes that each token writes.

Text is what a tokenizer's decoder makes of tokens. Stop strings, and drafts
with another tokenizer, need it a token at a time, and a token may hold half a
character: so in bytes.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


def byte_alphabet() -> dict[str, int]:
  """The character by which byte-level tokenizers write each byte.

  Printable Latin-1 stands for itself, the other bytes for what follows it in
  Unicode (GPT-2, Radford et al. 2019).
  """
  printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
  others = [byte for byte in range(256) if byte not in printable]
  return {chr(byte): byte for byte in printable} | {
    chr(256 + place): byte for place, byte in enumerate(others)
  }


def reader(decoder: Mapping[str, Any] | None) -> Callable[[str], bytes]:
  """What tells the bytes of a token.

  Args:
    decoder: of a tokenizer.json.

  Raises:
    ValueError: the decoder does not write each token by itself.
  """
  kinds = {part["type"]: part for part in _parts(decoder)}
  if "ByteLevel" in kinds:
    return _byte_level
  if "ByteFallback" in kinds or "Metaspace" in kinds:
    space = kinds.get("Metaspace", {}).get("replacement", "▁")
    return lambda token: _pieces(token, space)
  raise ValueError(
    "expected a tokenizer of bytes or of pieces with byte fallback, got one "
    f"with the decoder {', '.join(kinds) or 'none'}"
  )


def _parts(decoder: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
  if decoder is None:
    return
  if decoder["type"] != "Sequence":
    yield decoder
    return
  for part in decoder["decoders"]:
    yield from _parts(part)


_ALPHABET = byte_alphabet()


def _byte_level(token: str) -> bytes:
  try:
    return bytes(_ALPHABET[character] for character in token)
  except KeyError:  # added as text
    return token.encode()


def _pieces(token: str, space: str) -> bytes:
  byte = _BYTE.fullmatch(token)
  if byte:
    return bytes.fromhex(byte[1])
  return token.replace(space, " ").encode()
