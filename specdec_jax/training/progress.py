"""A bar that tells how fast tokens are learnt, and how long it will take."""

import sys
from contextlib import AbstractContextManager

import tqdm


class Progress:
  """A progress bar over the tokens of a training, if stderr is a terminal.

  Only tokens that count are told of. How many are to come is a guess where
  they are generated.
  """

  def __init__(self, steps: int, begin: int, tokens: int):
    """Opens the bar.

    Args:
      steps: of the whole training.
      begin: how many of them were made before.
      tokens: the most that a step learns from.
    """
    self._steps = steps
    self._begin = begin
    self._learnt = 0
    self._bar = tqdm.tqdm(
      total=steps * tokens,
      initial=begin * tokens,
      desc="Training",
      unit="tok",
      unit_scale=True,
      disable=not sys.stderr.isatty(),
      file=sys.stderr,
    )

  def __enter__(self) -> "Progress":
    return self

  def __exit__(self, *_: object) -> None:
    self._bar.close()

  def away(self) -> AbstractContextManager[None]:
    """While lines are written, so that they do not end up behind the bar."""
    return self._bar.external_write_mode(file=sys.stdout)

  def update(self, step: int, tokens: int, loss: float) -> None:
    """Tells of a step that learnt from so many tokens."""
    self._learnt += tokens
    rest = self._learnt * (self._steps - step) // (step - self._begin)
    self._bar.total = self._bar.n + tokens + rest
    self._bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
    self._bar.update(tokens)
