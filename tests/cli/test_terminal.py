import io

import pytest

from specdec_jax.cli.terminal import Terminal, one_line, shorten


class Stream(io.StringIO):
  def __init__(self, tty=False, encoding="utf-8"):
    super().__init__()
    self._tty = tty
    self._encoding = encoding

  @property
  def encoding(self):
    return self._encoding

  def isatty(self):
    return self._tty


RICH = {"TERM": "xterm-256color"}


def test_a_message_of_many_lines_becomes_one():
  assert one_line("2 faults:\n  a: \x1bmissing\n\n  b") == (
    r"2 faults: a: \x1bmissing; b"
  )
  assert one_line("") == ""


def test_shorten_keeps_the_beginning_in_one_line():
  assert shorten("a\n  b", 5) == "a b"
  assert shorten("abcdefgh", 6) == "abc..."


@pytest.mark.parametrize(
  "tty, environment, colour",
  [
    (True, RICH, True),
    (True, {"TERM": "xterm"}, True),
    (False, RICH, False),
    (True, RICH | {"NO_COLOR": "1"}, False),
    (True, RICH | {"NO_COLOR": ""}, True),
    (True, {"TERM": "dumb"}, False),
    (True, {}, False),
  ],
)
def test_colour_only_where_it_is_wanted(tty, environment, colour):
  out = Stream(tty)
  terminal = Terminal(out, Stream(), environment)
  terminal.tokens(["a", "", "b"], [True, True, False])
  assert terminal.colour == colour
  assert ("\x1b[" in out.getvalue()) == colour
  assert bool(terminal.legend()) == colour
  if not colour:
    assert out.getvalue() == "ab"


def test_who_wrote_a_token_shows_without_hues_too():
  out = Stream(tty=True)
  Terminal(out, Stream(), RICH).tokens(["d", "t"], [True, False])
  draft, target, _ = out.getvalue().split("\x1b[0m")
  assert draft.endswith("d") and "\x1b[1;" not in draft
  assert target.endswith("t") and target.startswith("\x1b[1;")


def test_model_text_is_sanitized_inside_the_colours():
  out = Stream(tty=True)
  Terminal(out, Stream(), RICH).tokens(["\x1b]0;title\x07"], [True])
  assert r"\x1b]0;title\x07" in out.getvalue()
  assert "\x1b]" not in out.getvalue()


def test_what_cannot_be_encoded_is_escaped():
  out = Stream(encoding="ascii")
  Terminal(out, Stream(), {}).tokens(["é漢"], [False])
  assert out.getvalue() == r"\xe9\u6f22"


@pytest.mark.parametrize(
  "share, unicode, ascii_form",
  [
    (0.0, "    ", "...."),
    (1.0, "████", "####"),
    (0.5, "██  ", "##.."),
    (0.28, "█▏  ", "#..."),
    (1.7, "████", "####"),
  ],
)
def test_bars(share, unicode, ascii_form):
  assert Terminal(Stream(), Stream(), {}).bar(share, 4) == unicode
  plain = Terminal(Stream(encoding="ascii"), Stream(), {})
  assert plain.bar(share, 4) == ascii_form
  assert plain.sign("τ", "tau") == "tau"


def test_a_table_is_aligned():
  out = Stream()
  Terminal(out, Stream(), {}).table([("a", "1"), ("longer", "2"), ("b", "")])
  assert out.getvalue() == "a       1\nlonger  2\nb\n"


def test_status_shows_on_terminals_only():
  quiet, loud = Stream(), Stream(tty=True)
  Terminal(Stream(), quiet, RICH).status("compile\x1b")
  Terminal(Stream(), loud, RICH).status("compile\x1b")
  assert quiet.getvalue() == ""
  assert loud.getvalue() == "\r\x1b[K" + r"compile\x1b"


def test_a_status_is_wiped_out_once():
  err = Stream(tty=True)
  terminal = Terminal(Stream(), err, RICH)
  terminal.status("")
  assert err.getvalue() == ""
  for text in ("a", "", ""):
    terminal.status(text)
  assert err.getvalue() == "\r\x1b[Ka\r\x1b[K"
