"""A conversation whose caches are kept from turn to turn."""

from collections.abc import Iterator

from specdec_jax.generate import SpeculativeDecoder
from specdec_jax.generation import Generation
from specdec_jax.prompts import Message, Request, check_request, encode_all
from specdec_jax.results import Chunk
from specdec_jax.sampling import SamplingParams
from specdec_jax.state import Prefix


class Conversation:
  """Turns of a user and a model. Only what is new in a turn is prefilled.

  The model reads the whole conversation in each turn, as its chat template
  writes it. What that has in common with what the caches hold is not run again,
  and the reply is that of a fresh run.

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
    max_new_tokens: int = 512,
    sampling: SamplingParams = SamplingParams(),
    context_length: int = 2048,
  ):
    """Begins a conversation.

    Args:
      decoder: what replies.
      system: a message of the system, before all others.
      max_new_tokens: of a reply; less where the context ends.
      sampling: of all replies.
      context_length: what the caches have room for from the start. They grow
        when the conversation does, and programs are compiled for that.

    Raises:
      ValueError: the target has no tokenizer, or that no chat template.
    """
    self._decoder = decoder
    self._system = system
    self._max_new_tokens = max_new_tokens
    self._sampling = sampling
    self._context = min(context_length, decoder.target.network.max_length)
    self.reset()
    self._encode([*self.messages, {"role": "user", "content": "?"}])

  def reset(self) -> None:
    """Forgets everything but the message of the system."""
    self.messages: list[Message] = []
    if self._system is not None:
      self.messages.append({"role": "system", "content": self._system})
    self.generation: Generation | None = None
    self.prompt_tokens = 0
    self._prefix: Prefix | None = None

  def send(self, text: str, blocks: int = 1) -> Iterator[Chunk]:
    """Says something, and yields the reply as it comes.

    Stop asking for chunks to cut the reply short; `end_turn` then keeps what
    there is.

    Args:
      text: what the user says.
      blocks: how many of them make a chunk.

    Raises:
      ValueError: the context has no room for it; nothing has been changed.
    """
    target = self._decoder.target
    self.end_turn()
    messages = [*self.messages, {"role": "user", "content": text}]
    tokens = self._encode(messages)
    room = target.network.max_length - len(tokens)
    new = max(min(self._max_new_tokens, room), 1)
    check_request("conversation", len(tokens), new, self._sampling, target)
    request = Request(tuple(tokens), self._sampling, new)
    generation = Generation(
      target,
      self._decoder.drafter,
      self._decoder.rule,
      [request],
      rows=1,
      prefix=self._prefix,
      least_limit=self._context,
    )
    self.messages, self.prompt_tokens = messages, len(tokens)
    self.generation, self._prefix = generation, None
    yield from self.generation.stream(blocks)
    self.end_turn()

  def end_turn(self) -> None:
    """Takes down the reply, as far as it got, and keeps its caches."""
    if self.generation is None or self._prefix is not None:
      return
    (reply,) = self.generation.result().completions
    self.messages.append({"role": "assistant", "content": reply.text})
    self._prefix = self.generation.prefix()

  def _encode(self, messages: list[Message]) -> list[int]:
    (tokens,) = encode_all([messages], self._decoder.target)
    return tokens
