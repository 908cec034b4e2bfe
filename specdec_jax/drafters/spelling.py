"""How the tokens of one tokenizer are written with those of another."""

import itertools
from collections.abc import Mapping
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from specdec_jax.loading.tokenizer import Tokenizer
from specdec_jax.types import Array


class Dictionary(NamedTuple):
  """From the target's tokens, of which there are V, to the draft's.

  Attributes:
    same_V: the draft's token that is the same; -1 where there is none.
    spelling_P: the draft's tokens for each of the target's, at least one for
      each: those within a text, then those at its beginning.
    offset_R: where in spelling_P each spelling begins and the one before it
      ends, R = 2 V + 1. Entry V + t is of token t at the beginning of a text.
  """

  same_V: Array
  spelling_P: Array
  offset_R: Array

  @classmethod
  def of(cls, draft: Tokenizer, target: Tokenizer) -> "Dictionary":
    """Tokens are the same if they write the same bytes.

    Special tokens write none. The ends of sequence are the same by their role;
    any other, and what the draft's tokens cannot write, is spelled by the
    draft's end of sequence: a break, of which a language model has seen many.
    A text begins with what the draft's tokenizer begins it with, in the place
    of what the target's does.

    Raises:
      ValueError: tokens of a tokenizer do not write bytes one by one.
    """
    words = by_bytes(draft)
    same_V = np.full(target.size, -1, np.int32)
    for text, token in by_bytes(target).items():
      same_V[token] = words.get(text, -1)
    if target.eos_ids and draft.eos_ids:
      same_V[target.eos_ids[0]] = draft.eos_ids[0]
    gap = draft.eos_ids or (0,)
    within = [
      (same,) if same >= 0 else spell(text, words) or gap
      for same, text in zip(same_V.tolist(), target.token_bytes, strict=True)
    ]
    opening = tuple(draft.encode(""))
    first = [opening + spelling for spelling in within]
    for token in target.encode(""):
      first[token] = opening or gap
    spellings = within + first
    parts = itertools.chain.from_iterable(spellings)
    offsets = itertools.accumulate(map(len, spellings), initial=0)
    # By way of numpy: jax reads long lists slowly.
    return cls(
      jnp.asarray(same_V),
      jnp.asarray(np.fromiter(parts, np.int32)),
      jnp.asarray(np.fromiter(offsets, np.int32)),
    )


def by_bytes(tokenizer: Tokenizer) -> dict[bytes, int]:
  """The token that writes these bytes.

  Of several it is the first that is no byte fallback, `<0x61>`: texts are not
  tokenized with those where there is another way.
  """
  fallback, written = tokenizer.byte_ids, tokenizer.token_bytes
  found: dict[bytes, int] = {}
  for i in sorted(range(len(written)), key=lambda i: (i in fallback, i)):
    if written[i]:
      found.setdefault(written[i], i)
  return found


def spell(text: bytes, words: Mapping[bytes, int]) -> tuple[int, ...]:
  """The longest token at each place; bytes that none writes are left out."""
  spelling = []
  while text:
    sizes = range(len(text), 0, -1)
    size = next((size for size in sizes if text[:size] in words), 0)
    if size:
      spelling.append(words[text[:size]])
    text = text[size or 1 :]
  return tuple(spelling)
