"""The flags that say how tokens are drawn and where the text ends."""

import dataclasses
from typing import Any

from absl import flags

import specdec_jax as sd
from specdec_jax.cli import generation_config
from specdec_jax.cli.terminal import Terminal


class SamplingFlags:
  """Flags of every command that writes text.

  Attributes:
    sampling: the flags of the law, for the help.
    ends: those of where the text ends.
  """

  def __init__(self, values: flags.FlagValues, max_new_tokens: int):
    def number(name: str, default: float, text: str) -> flags.FlagHolder:
      return flags.DEFINE_float(name, default, text, flag_values=values)

    def integer(name: str, default: int, text: str) -> flags.FlagHolder:
      return flags.DEFINE_integer(name, default, text, flag_values=values)

    def boolean(name: str, text: str) -> flags.FlagHolder:
      return flags.DEFINE_bool(name, False, text, flag_values=values)

    # Each is a field of SamplingParams, by the same name.
    law = [
      number(
        "temperature",
        0.0,
        "Divides the logits; 0 takes the most probable token.",
      ),
      integer("top_k", 0, "Keep the k most probable tokens; 0 keeps all."),
      number(
        "top_p",
        1.0,
        "Keep the most probable tokens up to this probability; in (0, 1].",
      ),
      number(
        "min_p",
        0.0,
        "Keep tokens of at least min_p times the largest probability.",
      ),
      number(
        "repetition_penalty",
        1.0,
        "Above 1, tokens of prompt and text become less probable.",
      ),
      number(
        "presence_penalty",
        0.0,
        "Taken off the logits of tokens that the text holds.",
      ),
      number(
        "frequency_penalty", 0.0, "Taken off as often as the text holds them."
      ),
    ]
    self._bias = flags.DEFINE_list(
      "logit_bias",
      [],
      "Added to logits, by token id: 15:-2.5,1023:4",
      flag_values=values,
    )
    self._allowed = flags.DEFINE_list(
      "allowed_token_ids",
      None,
      "The only tokens that may be written, by id: 15,16,17",
      flag_values=values,
    )
    seed = integer(
      "seed", 0, "Of the random numbers; text i of all takes seed + i."
    )
    self._use_config = boolean(
      "use_generation_config",
      "Take the sampling values that are not given as flags from the target's "
      "generation_config.json.",
    )
    self._max_new_tokens = integer(
      "max_new_tokens", max_new_tokens, "The most tokens written for a prompt."
    )
    ends = [
      integer("min_new_tokens", 0, "The fewest tokens written for a prompt."),
      boolean("ignore_eos", "Go on after an end of sequence."),
    ]
    stop = flags.DEFINE_multi_string(
      "stop",
      [],
      "End the text before this string; may be given several times. In bash, "
      r"$'\n\n' is an empty line.",
      flag_values=values,
    )
    self._fields = (*law, seed, *ends, stop)
    self.sampling = (*law, self._bias, self._allowed, seed, self._use_config)
    self.ends = (self._max_new_tokens, *ends, stop)

  @property
  def max_new_tokens(self) -> int:
    return self._max_new_tokens.value

  def settings(self) -> dict[str, Any]:
    """What the text depends on, for files that are gone on with."""
    return {
      "params": self.params(),
      "max_new_tokens": self.max_new_tokens,
      "use_generation_config": self._use_config.value,
    }

  def params(self) -> sd.SamplingParams:
    """What the flags say.

    Raises:
      ValueError: a value is out of range.
    """
    if self.max_new_tokens < 1:
      raise ValueError(
        f"--max_new_tokens: expected at least 1, got {self.max_new_tokens}"
      )
    fields: dict[str, Any] = {flag.name: flag.value for flag in self._fields}
    if self._allowed.value is not None:
      fields["allowed_token_ids"] = [
        _number("allowed_token_ids", text, int) for text in self._allowed.value
      ]
    return sd.SamplingParams(
      **fields, logit_bias=[_bias(text) for text in self._bias.value]
    )

  def params_for(
    self, target: sd.LanguageModel, shown: Terminal
  ) -> sd.SamplingParams:
    """The same, filled up from generation_config.json where asked for."""
    params = self.params()
    if not self._use_config.value:
      return params
    values = generation_config.sampling_values(target.generation_config)
    given = {flag.name for flag in self._fields if flag.present}
    used = {k: v for k, v in values.items() if k not in given}
    text = ", ".join(f"{name} {value}" for name, value in used.items())
    shown.note(f"from generation_config.json: {text or 'nothing'}")
    return dataclasses.replace(params, **used)


def _bias(text: str) -> tuple[int, float]:
  token, _, bias = text.partition(":")
  return _number("logit_bias", token, int), _number("logit_bias", bias, float)


def _number(flag: str, text: str, kind: type) -> Any:
  try:
    return kind(text)
  except ValueError:
    form = "ID:NUMBER" if flag == "logit_bias" else "ID"
    raise ValueError(
      f"--{flag}: expected {form},{form},.. got {text!r}"
    ) from None
