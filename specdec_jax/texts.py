"""From the tokens of a row to its text."""

from collections.abc import Sequence

from specdec_jax.loading.tokenizer import TextStream
from specdec_jax.models.language_model import LanguageModel
from specdec_jax.prompts import Request
from specdec_jax.stopping import StoppedText, StopStrings


class Texts:
  """Makes text of what some requests brought, up to their stop strings.

  Attributes:
    stops: the automaton of all stop strings; None if there are none.
  """

  def __init__(self, requests: Sequence[Request], target: LanguageModel):
    """Builds the automaton.

    Raises:
      ValueError: there are stop strings, and no tokenizer that they could be
        looked for with.
    """
    self._tokenizer = target.tokenizer
    self.stops = _stop_strings(requests, target)

  def reader(self, request: Request) -> TextStream | StoppedText | None:
    """What makes text of a request's tokens; None without a tokenizer."""
    if self._tokenizer is None:
      return None
    text, p = self._tokenizer.stream(), request.params
    if self.stops is None or not p.stop:
      return text
    root, early = self.stops.roots[tuple(p.stop)], p.min_new_tokens - 1
    return StoppedText(self._tokenizer, text, self.stops, root, early)

  def pieces(
    self, request: Request, tokens: list[int], reason: str | None
  ) -> list[str]:
    """The text of each token, see `results.Completion`."""
    text = self.reader(request)
    if text is None:
      return []
    pieces = [""] * len(tokens)
    shown = without_eos(tokens, reason)
    pieces[: len(shown)] = text.push(shown)
    if pieces:
      pieces[-1] += text.flush()
    return pieces


def _stop_strings(
  requests: Sequence[Request], target: LanguageModel
) -> StopStrings | None:
  """The automaton of all stop strings; None if there are none."""
  # A row that fills up the batch has none.
  sets = {(), *(tuple(request.params.stop) for request in requests)}
  if len(sets) == 1:
    return None
  if target.tokenizer is None:
    raise ValueError(
      f"stop: {target.name} has no tokenizer, and stop strings are text; use "
      "max_new_tokens"
    )
  try:
    token_bytes = target.tokenizer.token_bytes
  except ValueError as error:
    raise ValueError(f"stop: {target.name}: {error}") from error
  return StopStrings.of(tuple(sorted(sets)), token_bytes)


def without_eos(tokens: list[int], reason: str | None) -> list[int]:
  """The tokens that are text."""
  return tokens[:-1] if reason == "eos" else tokens
