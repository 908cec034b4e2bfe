"""What a reader gets to see of hostile text."""

import pytest

from specdec_jax.visible import sanitize


@pytest.mark.parametrize(
  "text, shown",
  [
    ("a\tb\nc", "a\tb\nc"),
    ("\x1b[31mred", r"\x1b[31mred"),
    ("\x07\x08\r\x00", r"\x07\x08\r\x00"),
    ("\x7f\x9b2J\x85", r"\x7f\x9b2J\x85"),
    ("\u202egpj.exe\u2066", r"\u202egpj.exe\u2066"),
    ("\u2028\u2029\ufeff\u200b", r"\u2028\u2029\ufeff\u200b"),
    ("\ud800", r"\ud800"),
    ("größe 漢字 👩\u200d👩", "größe 漢字 👩\u200d👩"),
  ],
)
def test_what_acts_on_a_reader_is_made_visible(text, shown):
  assert sanitize(text) == shown


def test_every_control_character_but_two_is_made_visible():
  controls = [chr(c) for c in (*range(32), *range(127, 160))]
  raw = [char for char in controls if sanitize(char) == char]
  assert raw == ["\t", "\n"]
