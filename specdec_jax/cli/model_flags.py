"""The flags that say how one pair of models speculates."""

from typing import Any

from absl import flags

import specdec_jax as sd
from specdec_jax.acceptance import LOSSY, named_rule
from specdec_jax.cli.pair_flags import MOST_DRAFT_TOKENS, PairFlags
from specdec_jax.cli.terminal import Terminal
from specdec_jax.types import Drafter


class ModelFlags(PairFlags):
  """Flags of every command that runs a target with one drafter.

  Attributes:
    speculation: the flags of the drafter and the rule, for the help.
  """

  def __init__(self, values: flags.FlagValues):
    super().__init__(values)
    self._drafter = flags.DEFINE_enum(
      "drafter",
      None,
      ["model", "lookup", "none"],
      "Where guesses come from: --draft, copies of what followed the same "
      "words earlier in the text, or nowhere (plain decoding). By default "
      "model if there is a draft, else none.",
      flag_values=values,
    )
    self._num_draft_tokens = flags.DEFINE_integer(
      "num_draft_tokens",
      None,
      "K, the most tokens guessed at a time; by default 4 with a draft model, "
      "8 with lookup.",
      flag_values=values,
    )
    self._rule = flags.DEFINE_string(
      "rule",
      "block",
      "How guesses are accepted: block, token, gumbel (the very tokens of "
      "plain gumbel sampling with the same seed), or one of the lossy "
      f"{', '.join(LOSSY)}. All are one at temperature 0.",
      flag_values=values,
    )
    self.speculation = (
      self._drafter,
      self._num_draft_tokens,
      *self.drafting,
      self._rule,
    )

  def check(self) -> None:
    """Checks what costs nothing to check, before models are loaded.

    Raises:
      ValueError: flags do not go together, or a value is out of range.
    """
    try:
      named_rule(self._rule.value)
    except ValueError as error:
      raise ValueError(f"--{error}") from error
    self.check_models([self.drafter])
    count = self._num_draft_tokens
    if count.value is not None:
      if self.drafter == "none":
        raise ValueError(
          "--num_draft_tokens is not for --drafter=none, only for model and "
          "lookup; leave it out"
        )
      if count.value > MOST_DRAFT_TOKENS:
        raise ValueError(
          f"--num_draft_tokens: expected at most {MOST_DRAFT_TOKENS}, got "
          f"{count.value}"
        )
      if self.drafter == "model" and count.value < 1:
        raise ValueError(
          "--num_draft_tokens: expected at least 1 with a draft model, got "
          f"{count.value}; --drafter=none is plain decoding"
        )
    if self.drafter == "lookup":
      sd.PromptLookup(**self._arguments())  # raises if they are out of range

  @property
  def drafter(self) -> str:
    """Where guesses come from: "model", "lookup" or "none"."""
    return self._drafter.value or ("model" if self.draft else "none")

  def _arguments(self) -> dict[str, Any]:
    """Of the drafter's class, a model apart."""
    arguments = self.drafter_arguments(self.drafter)
    if self._num_draft_tokens.value is not None:
      arguments["num_draft_tokens"] = self._num_draft_tokens.value
    return arguments

  def settings(self) -> dict[str, Any]:
    """What the text depends on, for files that are gone on with."""
    return {
      **self.model_settings(),
      "drafter": self.drafter,
      "rule": self._rule.value,
      **self._arguments(),
    }

  def load(self, shown: Terminal) -> sd.SpeculativeDecoder:
    """Loads the models."""
    target, draft = self.load_models(shown, self.drafter == "model")
    drafter: Drafter = sd.NoDraft()
    if draft is not None:
      drafter = sd.DraftModel(draft, **self._arguments())
    elif self.drafter == "lookup":
      drafter = sd.PromptLookup(**self._arguments())
    if self._rule.value in LOSSY:
      shown.note(
        f"--rule={self._rule.value} is lossy: above temperature 0 the text "
        "does not follow the target's distribution"
      )
    if self._draft.value and self.drafter != "model":
      shown.note(f"--draft is not used with --drafter={self.drafter}")
    elif self.drafter == "none" and not self._drafter.present:
      shown.note(
        "plain decoding; --draft=MODEL or --drafter=lookup would speculate"
      )
    return sd.SpeculativeDecoder(target, drafter, rule=self._rule.value)
