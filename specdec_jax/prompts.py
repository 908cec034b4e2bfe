"""From what a user calls a prompt to token ids."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from specdec_jax.models.language_model import LanguageModel
from specdec_jax.sampling import SamplingParams, is_integer

Message = Mapping[str, str]
Prompt = str | Sequence[int] | Sequence[Message]


@dataclasses.dataclass(frozen=True)
class Request:
  """A prompt to continue, checked and ready.

  Requests that differ in their seeds alone are equal: they share all work but
  the drawing of tokens.

  Attributes:
    tokens: the prompt.
    params: how to continue it; of seed 0.
    max_new_tokens: the most tokens to generate.
    seed: of its draws.
  """

  tokens: tuple[int, ...]
  params: SamplingParams
  max_new_tokens: int
  seed: int = dataclasses.field(default=0, compare=False)

  @property
  def limit(self) -> int:
    """The length at which it ends."""
    return len(self.tokens) + self.max_new_tokens


def encode_all(
  prompts: Prompt | Sequence[Prompt], target: LanguageModel
) -> list[list[int]]:
  """Token ids of one prompt or of several.

  Args:
    prompts: text, token ids or chat messages (`{"role": .., "content": ..}`),
      or a sequence of such.
    target: the model to read them.

  Raises:
    ValueError: a prompt is empty, of no known kind, or not for this target.
  """
  prompts = _plain(prompts)
  if not isinstance(prompts, Sequence):
    raise ValueError(
      "prompts: expected text, token ids, chat messages or a list of such, got "
      f"{type(prompts).__name__}"
    )
  rows = [prompts] if _is_one(prompts) else list(prompts)
  if not rows:
    raise ValueError("prompts: expected at least one prompt, got none")
  return [
    _encode(_plain(prompt), f"prompt {index}", target)
    for index, prompt in enumerate(rows)
  ]


def _plain(value: Any) -> Any:
  """Lists in the place of arrays, numpy's or jax's."""
  return value.tolist() if hasattr(value, "tolist") else value


def _is_one(prompts: Any) -> bool:
  if isinstance(prompts, str):
    return True
  return len(prompts) > 0 and (is_integer(prompts[0]) or _is_chat(prompts))


def _is_chat(prompt: Sequence) -> bool:
  return len(prompt) > 0 and all(isinstance(m, Mapping) for m in prompt)


def _encode(prompt: Any, name: str, target: LanguageModel) -> list[int]:
  if not isinstance(prompt, Sequence):
    raise ValueError(
      f"{name}: expected text, a list of token ids or a list of chat "
      f"messages, got {type(prompt).__name__}"
    )
  if isinstance(prompt, str) or _is_chat(prompt):
    if target.tokenizer is None:
      raise ValueError(
        f"{name}: {target.name} has no tokenizer; give token ids instead"
      )
    if isinstance(prompt, str):
      tokens = target.tokenizer.encode(prompt)
    else:
      tokens = target.tokenizer.apply_chat_template(prompt)
  elif all(is_integer(token) for token in prompt):
    tokens = [int(token) for token in prompt]
  else:
    raise ValueError(
      f"{name}: expected text, a list of token ids or a list of chat "
      f"messages, got {type(prompt).__name__} of "
      f"{', '.join(sorted({type(item).__name__ for item in prompt}))}"
    )
  if not tokens or prompt == "":
    raise ValueError(
      f"{name}: expected at least one token, got an empty prompt"
    )
  size = target.vocab_size
  for token in tokens:
    if not 0 <= token < size:
      raise ValueError(
        f"{name}: token {token} is outside the vocabulary of {target.name}, "
        f"[0, {size})"
      )
  return tokens


def check_request(
  name: str,
  length: int,
  max_new_tokens: int,
  params: SamplingParams,
  target: LanguageModel,
) -> None:
  """Checks that a target can continue a prompt so.

  Args:
    name: of the prompt, for the message.
    length: of the prompt, in tokens.
    max_new_tokens: how many more there may be.
    params: how to continue it.
    target: the model that shall read it.

  Raises:
    ValueError: it does not fit the context or the vocabulary, or its
      parameters contradict each other; it says what would do.
  """
  context = target.network.max_length
  if length >= context:
    raise ValueError(
      f"{name}: {length} tokens, but the context of {target.name} holds "
      f"{context} and one must be left to generate; shorten the prompt"
    )
  if length + max_new_tokens > context:
    raise ValueError(
      f"{name}: {length} tokens and {max_new_tokens} new ones do not fit the "
      f"context of {target.name}, {context}; set max_new_tokens to at most "
      f"{context - length}"
    )
  size = target.vocab_size
  allowed = params.allowed_token_ids
  for field, ids in (
    ("logit_bias", list(dict(params.logit_bias))),
    ("allowed_token_ids", allowed or ()),
  ):
    foreign = [token for token in ids if token >= size]
    if foreign:
      raise ValueError(
        f"{name}: {field}: token {foreign[0]} is outside the vocabulary of "
        f"{target.name}, [0, {size})"
      )
  if params.min_new_tokens > max_new_tokens:
    raise ValueError(
      f"{name}: min_new_tokens is {params.min_new_tokens}, expected at most "
      f"max_new_tokens, {max_new_tokens}"
    )
  banned = () if params.ignore_eos else target.eos_ids
  if params.min_new_tokens and allowed and set(allowed) <= set(banned):
    raise ValueError(
      f"{name}: allowed_token_ids are all ends of sequence, and min_new_tokens "
      f"is {params.min_new_tokens}: no token is left to draw"
    )
