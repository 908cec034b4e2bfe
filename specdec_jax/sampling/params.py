"""What a user says about the drawing of tokens."""

import dataclasses
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

# Logits divided by less could leave the range of float32.
_LEAST_TEMPERATURE, _GREATEST_TEMPERATURE = 1e-5, 1e30
# Any logit is far smaller than this; sums of such numbers stay finite.
_GREATEST_BIAS = 1e9


@dataclasses.dataclass(frozen=True)
class SamplingParams:
  """How the tokens of one prompt are drawn, and where they end.

  The law of a token is built in this order: bias, penalties, allowed tokens,
  temperature, top-k, top-p, min-p, renormalise.

  Attributes:
    temperature: divides the logits; 0 picks the most probable token. No
      less than 1e-5 otherwise.
    top_k: keep the k most probable tokens, and any that tie with the last of
      them; 0 keeps all.
    top_p: keep the most probable tokens up to a total probability of at least
      top_p, and any that tie with the last of them; in (0, 1].
    min_p: keep tokens of at least min_p times the largest probability; in
      [0, 1].
    repetition_penalty: divides positive and multiplies negative logits of
      tokens that the prompt or the text so far holds; in [0.01, 100], 1 does
      nothing.
    presence_penalty: subtracted from the logits of tokens that the text so
      far holds, the prompt not counted; in [-100, 100].
    frequency_penalty: the same, times how often the text holds them.
    logit_bias: added to the logits, by token id: a mapping, kept as pairs.
    allowed_token_ids: the only tokens that may be drawn; None allows all.
    stop: strings that end the text before them: one, or any number.
    seed: of this prompt's random numbers, in [0, 2**32).
    max_new_tokens: the most tokens to generate; None leaves it to the call.
    min_new_tokens: no token ends the row, and no stop string is looked for,
      before the text has so many tokens.
    ignore_eos: whether to go on after an end of sequence.
    logprobs: whether to report each token's log-probability under the
      target's raw logits.

  Raises:
    ValueError: a value lies outside its range.
  """

  temperature: float = 0.0
  top_k: int = 0
  top_p: float = 1.0
  min_p: float = 0.0
  repetition_penalty: float = 1.0
  presence_penalty: float = 0.0
  frequency_penalty: float = 0.0
  logit_bias: Mapping[int, float] | Sequence[tuple[int, float]] = ()
  allowed_token_ids: Sequence[int] | None = None
  stop: str | Sequence[str] = ()
  seed: int = 0
  max_new_tokens: int | None = None
  min_new_tokens: int = 0
  ignore_eos: bool = False
  logprobs: bool = False

  def __post_init__(self) -> None:
    for name in (
      "temperature",
      "top_p",
      "min_p",
      "repetition_penalty",
      "presence_penalty",
      "frequency_penalty",
    ):
      self._check(
        name, isinstance(getattr(self, name), numbers.Real), "a number"
      )
    self._check_filters()
    self._check_penalties()
    self._check_ends()
    self._check(
      "seed",
      is_integer(self.seed) and 0 <= self.seed < 2**32,
      "an integer in [0, 2**32)",
    )
    # What holds tokens is kept as tuples: parameters are keys of caches.
    bias, stop = self.logit_bias, self.stop
    pairs = bias.items() if isinstance(bias, Mapping) else bias
    self._keep("logit_bias", tuple(sorted(map(tuple, pairs))))
    self._keep("stop", (stop,) if isinstance(stop, str) else tuple(stop))
    if self.allowed_token_ids is not None:
      self._keep("allowed_token_ids", tuple(sorted({*self.allowed_token_ids})))

  def _keep(self, name: str, value: Any) -> None:
    object.__setattr__(self, name, value)

  def _check(self, name: str, ok: bool, expected: str) -> None:
    if not ok:
      value = getattr(self, name)
      raise ValueError(f"{name}: expected {expected}, got {value!r}")

  # The comparisons below are written so that NaN fails them.

  def _check_filters(self) -> None:
    self._check(
      "temperature",
      self.temperature == 0
      or _LEAST_TEMPERATURE <= self.temperature <= _GREATEST_TEMPERATURE,
      f"0 (greedy) or a number in [{_LEAST_TEMPERATURE}, "
      f"{_GREATEST_TEMPERATURE}]",
    )
    self._check(
      "top_k",
      is_integer(self.top_k) and 0 <= self.top_k < 2**31,
      "an integer of at least 0 (0 keeps all tokens)",
    )
    self._check(
      "top_p",
      0 < self.top_p <= 1,
      "a number in (0, 1] (1 keeps all tokens; for greedy decoding set "
      "temperature to 0)",
    )
    self._check("min_p", 0 <= self.min_p <= 1, "a number in [0, 1]")

  def _check_penalties(self) -> None:
    self._check(
      "repetition_penalty",
      0.01 <= self.repetition_penalty <= 100,
      "a number in [0.01, 100] (1 does nothing)",
    )
    for name in ("presence_penalty", "frequency_penalty"):
      self._check(
        name, -100 <= getattr(self, name) <= 100, "a number in [-100, 100]"
      )
    self._check(
      "logit_bias",
      _is_bias(self.logit_bias),
      f"numbers in [{-_GREATEST_BIAS:g}, {_GREATEST_BIAS:g}] by token id, one "
      "for each",
    )
    ids = self.allowed_token_ids
    self._check(
      "allowed_token_ids",
      ids is None or (_is_list(ids) and len(ids) > 0 and all(map(_is_id, ids))),
      "a list of at least one token id, or None",
    )

  def _check_ends(self) -> None:
    stops = [self.stop] if isinstance(self.stop, str) else self.stop
    self._check(
      "stop",
      _is_list(stops) and all(map(_is_text, stops)),
      "text, or a list of texts, none of them empty",
    )
    self._check(
      "max_new_tokens",
      self.max_new_tokens is None
      or (is_integer(self.max_new_tokens) and self.max_new_tokens >= 1),
      "an integer of at least 1",
    )
    self._check(
      "min_new_tokens",
      is_integer(self.min_new_tokens) and 0 <= self.min_new_tokens < 2**31,
      "an integer of at least 0",
    )

  @property
  def controlled(self) -> bool:
    """Whether anything is about single tokens; else nothing is compiled."""
    return (
      self.repetition_penalty != 1
      or self.presence_penalty != 0
      or self.frequency_penalty != 0
      or bool(self.logit_bias)
      or self.allowed_token_ids is not None
      or self.min_new_tokens > 0
    )


def is_integer(value: object) -> bool:
  """Whether this is a whole number, Python's or numpy's, and no truth value."""
  return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _is_list(value: object) -> bool:
  """Whether this has a length and an order, or is a set."""
  return isinstance(value, (Sequence, set, frozenset)) and not isinstance(
    value, (str, bytes)
  )


def _is_id(value: Any) -> bool:
  return is_integer(value) and 0 <= value < 2**31


def _is_text(value: object) -> bool:
  """Whether this is text that can be written as bytes, and not empty."""
  if not isinstance(value, str) or not value:
    return False
  try:
    value.encode()
  except UnicodeEncodeError:  # half of a character
    return False
  return True


def _is_bias(value: Any) -> bool:
  pairs = list(value.items()) if isinstance(value, Mapping) else value
  return (
    _is_list(pairs)
    and all(map(_is_pair, pairs))
    and len({token for token, _ in pairs}) == len(pairs)
  )


def _is_pair(pair: Any) -> bool:
  return (
    isinstance(pair, Sequence)
    and len(pair) == 2
    and _is_id(pair[0])
    and isinstance(pair[1], numbers.Real)
    and -_GREATEST_BIAS <= float(pair[1]) <= _GREATEST_BIAS
  )
