"""What reaches the terminal: colours, bars, tables, and nothing that bites."""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TextIO

from specdec_jax.visible import sanitize

# Blue and orange differ for every kind of colour vision, and read on dark and
# on light. The target's tokens are bold too, for those who see no hues.
_PALETTES = {
  "256": {"draft": "\x1b[38;5;32m", "target": "\x1b[1;38;5;172m"},
  "16": {"draft": "\x1b[36m", "target": "\x1b[1;33m"},
}
_RESET = "\x1b[0m"


def one_line(text: str) -> str:
  """The lines of a message in one."""
  first, *rest = [line.strip() for line in str(text).splitlines()] or [""]
  rest = [line for line in rest if line]
  return sanitize(" ".join([first, "; ".join(rest)]).strip())


def shorten(text: str, width: int) -> str:
  """The beginning of a text, in one line."""
  line = " ".join(text.split())
  return line if len(line) <= width else line[: width - 3] + "..."


class Terminal:
  """Writes text and tables to a stream, as far as the stream can show them.

  Attributes:
    colour: whether tokens are coloured by who wrote them.
    unicode: whether bars and signs beyond ASCII can be encoded.
  """

  def __init__(
    self,
    out: TextIO | None = None,
    err: TextIO | None = None,
    environment: Mapping[str, str] | None = None,
  ):
    self._out = sys.stdout if out is None else out
    self._err = sys.stderr if err is None else err
    env = os.environ if environment is None else environment
    dumb = env.get("TERM", "dumb") == "dumb"
    self.colour = self._out.isatty() and not dumb and not env.get("NO_COLOR")
    rich = "256" in env.get("TERM", "") or bool(env.get("COLORTERM"))
    self._palette = _PALETTES["256" if rich else "16"]
    self._encoding = self._out.encoding or "utf-8"
    self.unicode = self._encodes("█▏τ")
    self._transient = self._err.isatty() and not dumb
    self._status = ""

  def _encodes(self, text: str) -> bool:
    try:
      text.encode(self._encoding)
    except (LookupError, UnicodeEncodeError):
      return False
    return True

  def _write(self, text: str) -> None:
    """Writes what the encoding can take; the rest as escapes."""
    if not self._encodes(text):
      raw = text.encode(self._encoding, "backslashreplace")
      text = raw.decode(self._encoding)
    self._out.write(text)
    self._out.flush()

  def line(self, text: str = "") -> None:
    """Writes a line of our own making; what is not must be sanitized."""
    self._write(text + "\n")

  def tokens(self, pieces: Sequence[str], drafted: Sequence[bool]) -> None:
    """Writes the text of some tokens, coloured by who wrote each."""
    out = []
    for piece, by_draft in zip(pieces, drafted, strict=True):
      if piece:
        who = "draft" if by_draft else "target"
        out.append(self._coloured(sanitize(piece), who))
    self._write("".join(out))

  def _coloured(self, text: str, who: str) -> str:
    return f"{self._palette[who]}{text}{_RESET}" if self.colour else text

  def legend(self) -> str:
    """What the colours mean; "" without colours."""
    if not self.colour:
      return ""
    names = [self._coloured(f"by the {who}", who) for who in self._palette]
    return "colours: " + ", ".join(names)

  def table(self, rows: Iterable[tuple[str, str]]) -> None:
    """Writes labels and values in two columns."""
    rows = list(rows)
    width = max(len(label) for label, _ in rows)
    for label, value in rows:
      self.line(f"{label:<{width}}  {value}".rstrip())

  def bar(self, share: float, width: int = 20) -> str:
    """A bar whose length is `share` of the width, in eighths of a column."""
    share = min(max(share, 0.0), 1.0)
    if not self.unicode:
      return ("#" * round(share * width)).ljust(width, ".")
    full, eighths = divmod(round(share * width * 8), 8)
    return ("█" * full + " ▏▎▍▌▋▊▉"[eighths].strip()).ljust(width)

  def sign(self, symbol: str, ascii_form: str) -> str:
    """The symbol, or its ASCII form where it cannot be encoded."""
    return symbol if self.unicode else ascii_form

  def note(self, text: str) -> None:
    """Tells something on stderr, beside the output."""
    self.status("")
    print(f"note: {one_line(text)}", file=self._err, flush=True)

  def status(self, text: str) -> None:
    """Shows what goes on, until the next status; "" ends it.

    Nowhere but on a terminal, where it is wiped out again. With nothing to
    wipe out nothing is written: the line may be one of the output's.
    """
    if self._transient and (text or self._status):
      self._err.write("\r\x1b[K" + one_line(text))
      self._err.flush()
    self._status = text
