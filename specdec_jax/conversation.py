"""A conversation whose caches are kept from turn to turn."""

import dataclasses
from collections.abc import Iterator

from specdec_jax.generate import SpeculativeDecoder
from specdec_jax.generation import Generation
from specdec_jax.prompts import Message, Request, check_request, encode_all
from specdec_jax.results import Chunk
from specdec_jax.sampling import SamplingParams, is_integer
from specdec_jax.state import Prefix

_DEFAULT_MAX_NEW_TOKENS = 512


class Conversation:
  """Turns of a user and a model. Only what is new in a turn is prefilled.

  The model reads the whole conversation in each turn, as its chat template
  writes it, or as plain text. What that has in common with what the caches hold
  is not run again, and the reply is that of a fresh run. Each turn has a seed
  of its own, so that no random number is used twice: turn n of all takes
  seed + n.

  Attributes:
    messages: all so far, `{"role": .., "content": ..}`.
    generation: of the newest reply; None before the first.
    prompt_tokens: of the whole conversation, when the newest reply began.
  """

  def __init__(
    self,
    decoder: SpeculativeDecoder,
    *,
    system: str | None = None,
    chat_template: bool = True,
    max_new_tokens: int = _DEFAULT_MAX_NEW_TOKENS,
    sampling: SamplingParams = SamplingParams(),
    context_length: int = 2048,
  ):
    """Begins a conversation.

    Args:
      decoder: what replies.
      system: a message of the system, before all others.
      chat_template: whether messages are written by the target's chat
        template. Else they follow one another as text and a reply continues
        it, for models that were not made to chat.
      max_new_tokens: of a reply, if `sampling` leaves it open; less where the
        context ends.
      sampling: of all replies.
      context_length: what the caches have room for from the start. They grow
        when the conversation does, and programs are compiled for that.

    Raises:
      ValueError: the target has no tokenizer, or that no chat template, which
        is wanted; a number is below 1; or `sampling` is not for this target.
    """
    for name, value in (
      ("max_new_tokens", max_new_tokens),
      ("context_length", context_length),
    ):
      if not is_integer(value) or value < 1:
        raise ValueError(
          f"{name}: expected an integer of at least 1, got {value}"
        )
    self._decoder = decoder
    self._system = system
    self._chat_template = chat_template
    self._max_new_tokens = sampling.max_new_tokens or max_new_tokens
    self._sampling = sampling
    self._context = min(context_length, decoder.target.network.max_length)
    self._turns = 0
    self.reset()
    self._request([*self.messages, {"role": "user", "content": "?"}])

  def reset(self) -> None:
    """Forgets everything but the message of the system."""
    self.messages: list[Message] = []
    if self._system is not None:
      self.messages.append({"role": "system", "content": self._system})
    self.generation: Generation | None = None
    self.prompt_tokens = 0
    self._prefix: Prefix | None = None

  def send(self, text: str) -> Iterator[Chunk]:
    """Says something, and yields the reply block by block.

    Stop asking for chunks to cut the reply short; `end_turn` then keeps what
    there is.

    Args:
      text: what the user says.

    Raises:
      ValueError: the context has no room for it; nothing has been changed.
    """
    self.end_turn()
    messages = [*self.messages, {"role": "user", "content": text}]
    request = self._request(messages)
    generation = Generation(
      self._decoder.target,
      self._decoder.drafter,
      self._decoder.rule,
      [request],
      rows=1,
      prefix=self._prefix,
      least_limit=self._context,
    )
    self._turns += 1
    self.messages, self.prompt_tokens = messages, len(request.tokens)
    self.generation, self._prefix = generation, None
    yield from self.generation.stream()
    self.end_turn()

  def end_turn(self) -> None:
    """Takes down the reply, as far as it got, and keeps its caches."""
    if self.generation is None or self._prefix is not None:
      return
    (reply,) = self.generation.result().completions
    text = reply.text
    if reply.finish_reason is None:  # half a character may be its end
      text = text.rstrip("\N{REPLACEMENT CHARACTER}")
    self.messages.append({"role": "assistant", "content": text})
    self._prefix = self.generation.prefix()

  def _request(self, messages: list[Message]) -> Request:
    target, params = self._decoder.target, self._sampling
    text = "".join(message["content"] for message in messages)
    (tokens,) = encode_all([messages if self._chat_template else text], target)
    room = target.network.max_length - len(tokens)
    new = max(min(self._max_new_tokens, room), 1)
    check_request("conversation", len(tokens), new, params, target)
    seed = (params.seed + self._turns) % 2**32
    return Request(
      tuple(tokens), dataclasses.replace(params, seed=0), new, seed
    )
