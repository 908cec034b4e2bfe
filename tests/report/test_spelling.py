"""What tokens write, each by itself."""

import pytest

from specdec_jax.report.spelling import Speller
from tests.report.made import Vocabulary

EURO = "€".encode()
VOCABULARY = Vocabulary(
  *(b"a", EURO[:1], EURO[1:2], EURO[2:] + b"b", b"\xff", b"x" + EURO[:2], b"")
)
A, E2, X82, AC_B, FF, X_E2_82, EMPTY = range(1, 8)


def spelt(*tokens):
  speller, before, shown = Speller(VOCABULARY), b"", []
  for token in tokens:
    parts, before = speller.spell(token, before)
    shown.append([(part.kind, part.text) for part in parts])
  return shown


@pytest.mark.parametrize(
  "tokens, shown",
  [
    ([A], [[("text", "a")]]),
    # A character counts to the token that completes it.
    (
      [E2, X82, AC_B],
      [[("bytes", "E2")], [("bytes", "82")], [("text", "€b")]],
    ),
    ([X_E2_82, AC_B], [[("text", "x"), ("bytes", "E2 82")], [("text", "€b")]]),
    # Bytes that never become one are shown once, where they stand.
    ([E2, A], [[("bytes", "E2")], [("text", "a")]]),
    ([FF, A], [[("bytes", "FF")], [("text", "a")]]),
    ([E2, X_E2_82], [[("bytes", "E2")], [("text", "x"), ("bytes", "E2 82")]]),
    ([AC_B], [[("bytes", "AC"), ("text", "b")]]),
    # What has no text has a name.
    ([0], [[("name", "<eos>")]]),
    ([EMPTY], [[("name", f"#{EMPTY}")]]),
  ],
)
def test_parts(tokens, shown):
  assert spelt(*tokens) == shown


def test_a_draft_leaves_no_mark_on_another():
  speller = Speller(VOCABULARY)
  _, before = speller.spell(E2)
  for draft in (A, X82, FF):
    speller.spell(draft, before)
  parts, _ = speller.spell(X_E2_82, before)
  assert [part.text for part in parts] == ["x", "E2 82"]


def test_without_bytes_it_decodes():
  class Odd(Vocabulary):
    @property
    def token_bytes(self):
      raise ValueError("no bytes")

    @token_bytes.setter
    def token_bytes(self, value):
      pass

    def decode(self, ids):
      return f"text of {ids}"

  (part,), before = Speller(Odd()).spell(3)
  assert (part.kind, part.text, before) == ("text", "text of [3]", b"")


def test_without_a_tokenizer_it_shows_ids():
  (part,), _ = Speller(None).spell(17)
  assert (part.kind, part.text) == ("name", "17")
