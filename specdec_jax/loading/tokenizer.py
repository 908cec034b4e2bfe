"""Text to token ids and back. The only importer of transformers.

transformers is imported when a tokenizer is loaded, not before: it is slow.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specdec_jax.loading import token_bytes

FILES = (
  "tokenizer.json",
  "tokenizer.model",
  "tokenizer_config.json",
  "vocab.json",
)

# What a decoder puts where bytes are no character, or not yet.
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def _import_transformers() -> Any:
  """Imports transformers without its advice to install torch."""
  name = "TRANSFORMERS_NO_ADVISORY_WARNINGS"
  before = os.environ.get(name)
  os.environ[name] = "1"
  try:
    import transformers
  finally:
    if before is None:
      del os.environ[name]
    else:
      os.environ[name] = before
  return transformers


class Tokenizer:
  """A Hugging Face tokenizer.

  Attributes:
    size: V: the largest id + 1.
  """

  def __init__(self, tokenizer: Any):
    """Wraps a transformers tokenizer; see `from_folder`."""
    self._tokenizer = tokenizer
    # Converters to GGUF name rows so that only fill up the embedding. Models
    # of several sizes share a tokenizer, but not their number.
    self._vocab = {
      token: i
      for token, i in tokenizer.get_vocab().items()
      if token != f"[PAD{i}]"
    }
    if not self._vocab:
      raise ValueError("its vocabulary is empty")
    self.size = max(self._vocab.values()) + 1

  @classmethod
  def from_folder(cls, folder: str | Path) -> Tokenizer:
    """Reads the tokenizer of a model's folder. Never runs code from it.

    Raises:
      ValueError: there is none, or it cannot be read.
    """
    if not any((Path(folder) / name).is_file() for name in FILES):
      raise ValueError(f"no tokenizer in {folder}: expected {FILES[0]}")
    transformers = _import_transformers()
    try:
      tokenizer = transformers.AutoTokenizer.from_pretrained(
        str(folder), local_files_only=True, trust_remote_code=False
      )
      return cls(tokenizer)
    except Exception as error:  # it raises whatever its parsers raise
      raise ValueError(
        f"cannot read the tokenizer in {folder}: {error}"
      ) from error

  @classmethod
  def from_backend(
    cls, backend: Any, special: Mapping[str, str | None], template: str | None
  ) -> Tokenizer:
    """Takes a tokenizer of the package tokenizers.

    Args:
      backend: the tokenizer.
      special: `bos_token` and the like, as transformers calls them.
      template: of chats.
    """
    transformers = _import_transformers()
    return cls(
      transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, chat_template=template, **special
      )
    )

  def save(self, folder: Path) -> None:
    """Writes the files that `from_folder` reads."""
    self._tokenizer.save_pretrained(str(folder))

  @property
  def eos_ids(self) -> tuple[int, ...]:
    """The tokenizer's own end of sequence, () if it has none."""
    eos = self._tokenizer.eos_token_id
    return () if eos is None else (int(eos),)

  @property
  def has_chat_template(self) -> bool:
    """Whether it can write a chat as text."""
    return bool(getattr(self._tokenizer, "chat_template", None))

  @functools.cached_property
  def special_ids(self) -> frozenset[int]:
    """Ids that `decode` leaves out."""
    added = self._tokenizer.added_tokens_decoder
    special = {i for i, token in added.items() if token.special}
    return frozenset(special.union(self._tokenizer.all_special_ids))

  @functools.cached_property
  def byte_ids(self) -> frozenset[int]:
    """Ids of single bytes, `<0x0A>`: a run of them is decoded as a whole."""
    names = (f"<0x{byte:02X}>" for byte in range(256))
    return frozenset(self._vocab[name] for name in names if name in self._vocab)

  @functools.cached_property
  def token_bytes(self) -> tuple[bytes, ...]:
    """The bytes that each id writes, `[V]`; none for those left out.

    The bytes of ids one after the other are the text that `decode` gives, but
    for a space that it may strip at the beginning, and for bytes that are no
    character, which it replaces.

    Raises:
      ValueError: tokens of this tokenizer do not write bytes one by one.
    """
    state = getattr(self._tokenizer, "backend_tokenizer", None)
    decoder = getattr(state, "decoder", None)
    read = token_bytes.reader(decoder and json.loads(decoder.__getstate__()))
    written = [b""] * self.size
    for token, i in self._vocab.items():
      if i not in self.special_ids:
        written[i] = read(token)
    return tuple(written)

  def name(self, token: int) -> str:
    """What its vocabulary calls a token, `<|endoftext|>` say; "" if nothing."""
    return self._tokenizer.convert_ids_to_tokens(int(token)) or ""

  def encode(self, text: str) -> list[int]:
    """Token ids, with the special tokens that the tokenizer adds itself."""
    return list(self._tokenizer.encode(text))

  def decode(self, ids: Sequence[int]) -> str:
    """Text without special tokens, spaces as they are."""
    return self._tokenizer.decode(
      [int(i) for i in ids],
      skip_special_tokens=True,
      clean_up_tokenization_spaces=False,
    )

  def apply_chat_template(
    self, messages: Sequence[Mapping[str, str]]
  ) -> list[int]:
    """Token ids of a chat, up to where the model's answer begins.

    The template comes with the model; transformers renders it in a sandbox.

    Raises:
      ValueError: there is no template, or it refuses the messages.
    """
    if not self.has_chat_template:
      raise ValueError("the tokenizer has no chat template; pass text instead")
    try:
      ids = self._tokenizer.apply_chat_template(
        [dict(message) for message in messages],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=False,
      )
    except Exception as error:  # templates fail in every way
      raise ValueError(
        f"the chat template failed: {type(error).__name__}: {error}"
      ) from error
    return [int(i) for i in ids]

  def same_as(self, other: Tokenizer) -> str | None:
    """None if both give the same meaning to each id, else the reason."""
    ours, theirs = self._vocab, other._vocab
    if ours == theirs:
      return None
    mine = {i: token for token, i in ours.items()}
    yours = {i: token for token, i in theirs.items()}
    first = min(
      i for i in mine.keys() | yours.keys() if mine.get(i) != yours.get(i)
    )
    return (
      f"token {first} is {mine.get(first)!r} in one and "
      f"{yours.get(first)!r} in the other; sizes {self.size} and {other.size}"
    )

  def stream(self) -> TextStream:
    """Decodes tokens as they come."""
    return TextStream(self)


class TextStream:
  """Text of a sequence that grows, each character once.

  A token's text depends on its neighbours: spaces before it, and characters
  whose bytes span tokens. So a window of tokens is decoded, of which the
  first part has already been given out, and a character that may still change
  is held back. The pieces, `flush` included, add up to `decode` of all ids.
  """

  def __init__(self, tokenizer: Tokenizer):
    self._tokenizer = tokenizer
    self._ids: list[int] = []
    self._pieces: list[str] = []
    # Tokens of the window: all not yet given out, and some context before.
    self._window: list[int] = []
    self._context = 0
    # How many characters of the window's text have been given out.
    self._given = 0

  def push(self, ids: Sequence[int]) -> list[str]:
    """One piece for each id; "" where its text is not complete."""
    return [self._push(int(i)) for i in ids]

  def flush(self) -> str:
    """What is still held back."""
    given = "".join(self._pieces)
    text = self._tokenizer.decode(self._ids)
    if text.startswith(given):
      piece = text[len(given) :]
    else:
      piece = self._tokenizer.decode(self._window)[self._given :]
    self._pieces.append(piece)
    self._given += len(piece)
    return piece

  def _push(self, token: int) -> str:
    self._ids.append(token)
    if token in self._tokenizer.special_ids:
      self._pieces.append("")
      return ""
    self._window.append(token)
    piece = ""
    # The text of a run of byte tokens is open until the run ends.
    if token not in self._tokenizer.byte_ids:
      text = self._tokenizer.decode(self._window)
      # Bytes that may become a character show as one replacement at the end.
      known = text.removesuffix(_REPLACEMENT)
      piece = known[self._given :]
      self._given = max(self._given, len(known))
      if len(known) == len(text):
        self._move(self._context)
      elif len(self._window) > 16:
        self._cut(text)
    self._pieces.append(piece)
    return piece

  def _move(self, start: int) -> None:
    """Drops the window's tokens before `start`; all of it was given out."""
    self._window = self._window[start:]
    self._context = len(self._window)
    self._given = len(self._tokenizer.decode(self._window))

  def _cut(self, text: str) -> None:
    """Shortens a window of bytes that never become a character."""
    # At most three tokens at the end are open. A cut may fall into a
    # character: take one where the two parts add up.
    for cut in range(len(self._window) - 4, len(self._window) - 8, -1):
      before = self._tokenizer.decode(self._window[:cut])
      after = self._tokenizer.decode(self._window[cut:])
      if before + after == text:
        self._window = self._window[cut:]
        self._context = 0
        self._given -= len(before)
        return
