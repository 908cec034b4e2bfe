import numpy as np
import pytest

from specdec_jax.drafters.spelling import Dictionary, by_bytes, spell
from tests.drafters.vocabularies import byte_fallback, byte_level

# Tokens 0 and 1 are the beginning and the end of a text.
PIECES = byte_fallback(
  *("<0x61>", "<0xC3>", "<0xA9>", "▁", "a", "b", "▁the", "▁them", "é", "zz")
)
# Token 0 is the end of a text. Ã© are the bytes of é.
BYTES = byte_level("a", "b", "t", "h", "e", "m", "Ġ", "Ġthe", "Ã", "©", "ab")


def _spellings(draft, target) -> tuple[list[list[int]], list[list[int]]]:
  """Of each token within a text, and at its beginning."""
  words = Dictionary.of(draft, target)
  parts = np.split(words.spelling_P, words.offset_R[1:-1])
  all_of_them = [part.tolist() for part in parts]
  return all_of_them[: target.size], all_of_them[target.size :]


def test_tokens_are_the_same_if_they_write_the_same_bytes():
  # Of <0x61> and a, which are one to the text, a is taken.
  same = {1: 0, 3: 9, 4: 10, 5: 7, 6: 1, 7: 2, 8: 8}
  expected = [same.get(token, -1) for token in range(PIECES.size)]
  assert Dictionary.of(BYTES, PIECES).same_V.tolist() == expected
  back = {draft: target for target, draft in same.items()}
  expected = [back.get(token, -1) for token in range(BYTES.size)]
  assert Dictionary.of(PIECES, BYTES).same_V.tolist() == expected


def test_others_are_spelled_by_the_longest_tokens_that_fit():
  within, _ = _spellings(BYTES, PIECES)
  assert within[2] == [1]  # a
  assert within[9] == [8, 6]  # ▁them: Ġthe, m
  assert within[10] == [9, 10]  # é, by its bytes
  assert within[11] == [0]  # zz cannot be written
  assert within[0] == [0]  # nor can the beginning
  within, _ = _spellings(PIECES, BYTES)
  assert within[11] == [6, 7]  # ab
  assert within[3] == [1]  # t alone cannot be written


def test_a_text_begins_as_its_reader_expects():
  within, first = _spellings(PIECES, BYTES)
  assert first == [[0, *spelling] for spelling in within]
  within, first = _spellings(BYTES, PIECES)
  assert first == within
  within, first = _spellings(PIECES, byte_fallback("a", "c"))
  assert within[:3] == [[1], [1], [6]]
  assert first[:3] == [[0], [0, 1], [0, 6]]


def test_spellings_write_the_same_text():
  letters = byte_level(*"abtehm", "Ġ", "Ã", "©", "z")
  within, first = _spellings(letters, PIECES)
  for token, text in enumerate(PIECES.token_bytes):
    for spelling in (within[token], first[token]):
      assert b"".join(letters.token_bytes[i] for i in spelling) == text


def test_bytes_that_no_token_writes_are_left_out():
  words = by_bytes(byte_level("a", "aa", "c"))
  assert spell(b"aaabca", words) == (2, 1, 3, 1)
  assert spell(b"", words) == spell(b"b", words) == ()


@pytest.mark.parametrize("draft, target", [(BYTES, PIECES), (PIECES, BYTES)])
def test_ends_of_sequence_are_the_same(draft, target):
  same_V = Dictionary.of(draft, target).same_V
  assert same_V[target.eos_ids[0]] == draft.eos_ids[0]
