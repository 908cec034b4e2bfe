import io

from specdec_jax.cli import batches
from specdec_jax.cli.terminal import Terminal
from specdec_jax.results import Chunk


class Chunks:
  """A generation that yields what it is told to."""

  def __init__(self, *chunks):
    self._chunks = chunks

  def stream(self):
    return iter(self._chunks)

  def result(self):
    return None


def test_text_that_was_held_back_is_written_at_the_end(tty):
  drafted = Chunk("ab", [1, 2], [False, True], ["a", "b"], None)
  rest = Chunk("\ufffd", [], [], [], "nonfinite")
  shown = Terminal(tty, io.StringIO())
  batches.stream(Chunks(drafted, rest), shown)
  by_draft = shown._coloured("\ufffd", "draft")
  assert tty.getvalue().endswith(shown._coloured("b", "draft") + by_draft)
  before = tty.getvalue()
  batches.stream(Chunks(rest), shown)
  assert tty.getvalue() == before + shown._coloured("\ufffd", "target")
