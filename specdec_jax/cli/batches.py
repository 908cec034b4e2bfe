"""Runs prompts through a decoder, and loses nothing at Ctrl-C."""

import dataclasses
import time
from collections.abc import Sequence

import specdec_jax as sd
from specdec_jax.cli.command import ctrl_c_waits
from specdec_jax.cli.prompts_file import NamedPrompt
from specdec_jax.cli.terminal import Terminal
from specdec_jax.prompts import check_request, encode_all

# Ctrl-C is answered between advances: about so many seconds apart.
_ADVANCE_SECONDS = 0.4


@dataclasses.dataclass(frozen=True)
class Request:
  """A batch of prompts, ready to start.

  Attributes:
    prompts: as they were given.
    tokens: as the target reads them.
    sampling: of each prompt.
    max_new_tokens: of each prompt.
  """

  prompts: list[NamedPrompt]
  tokens: list[list[int]]
  sampling: list[sd.SamplingParams]
  max_new_tokens: int

  def start(self, decoder: sd.SpeculativeDecoder) -> sd.Generation:
    """Compiles and prefills."""
    return decoder.start(
      self.tokens, max_new_tokens=self.max_new_tokens, sampling=self.sampling
    )


def make_requests(
  prompts: Sequence[NamedPrompt],
  target: sd.LanguageModel,
  sampling: sd.SamplingParams,
  *,
  max_new_tokens: int,
  batch_size: int,
  chat_template: bool,
) -> list[Request]:
  """Reads all prompts with the target and cuts them into batches.

  Prompt i of all takes seed + i, so that the text does not depend on the size
  of the batches.

  Raises:
    ValueError: a prompt is not for this target, or does not fit its context;
      it names the prompt.
  """
  tokens = [
    _encode(prompt, target, max_new_tokens, chat_template, sampling)
    for prompt in prompts
  ]
  params = [
    dataclasses.replace(sampling, seed=(sampling.seed + index) % 2**32)
    for index in range(len(prompts))
  ]
  return [
    Request(
      list(prompts[begin : begin + batch_size]),
      tokens[begin : begin + batch_size],
      params[begin : begin + batch_size],
      max_new_tokens,
    )
    for begin in range(0, len(prompts), batch_size)
  ]


def _encode(
  prompt: NamedPrompt,
  target: sd.LanguageModel,
  max_new_tokens: int,
  chat_template: bool,
  sampling: sd.SamplingParams,
) -> list[int]:
  """Token ids of a prompt; refused here, before any other is generated."""
  message = {"role": "user", "content": prompt.text}
  try:
    (tokens,) = encode_all(
      [[message] if chat_template else prompt.text], target
    )
  except ValueError as error:
    reason = str(error).removeprefix("prompt 0: ")
    raise ValueError(f"{prompt.name}: {reason}") from error
  check_request(prompt.name, len(tokens), max_new_tokens, sampling, target)
  return tokens


def finish(generation: sd.Generation) -> tuple[sd.GenerationResult, bool]:
  """Runs a generation to its end, or to Ctrl-C.

  Returns:
    What there is, and whether it was interrupted.
  """
  blocks = 1
  try:
    while not generation.done:
      begin = time.perf_counter()
      with ctrl_c_waits():
        generation.advance(blocks)
      seconds = time.perf_counter() - begin
      more = int(blocks * _ADVANCE_SECONDS / max(seconds, 1e-6))
      blocks = min(max(more, 1), 4 * blocks)
  except KeyboardInterrupt:
    return generation.result(), True
  return generation.result(), False


def stream(
  generation: sd.Generation, terminal: Terminal
) -> tuple[sd.GenerationResult, bool]:
  """Like `finish` for one prompt, and writes each block's text as it comes."""
  chunks = generation.stream()
  ended, by_draft = False, False
  try:
    while not ended:
      with ctrl_c_waits():
        chunk = next(chunks, None)
        if chunk is not None:
          terminal.status("")
          pieces, drafted = chunk.pieces, chunk.drafted
          if chunk.text and not pieces:
            # The row ended without a token: text of its last one was held back.
            pieces, drafted = [chunk.text], [by_draft]
          terminal.tokens(pieces, drafted)
          by_draft = bool(drafted) and drafted[-1]
      ended = chunk is None
  except KeyboardInterrupt:
    return generation.result(), True
  return generation.result(), False


def write(
  result: sd.GenerationResult,
  row: int,
  target: sd.LanguageModel,
  terminal: Terminal,
) -> None:
  """Writes the text of a row of a batch, coloured as a stream is."""
  tokens, drafted = result.tokens[row], result.drafted[row]
  if result.finish_reasons[row] == "eos":
    tokens, drafted = tokens[:-1], drafted[:-1]
  if tokens:
    assert target.tokenizer is not None  # it has read the prompt
    text = target.tokenizer.stream()
    pieces = text.push(tokens)
    pieces[-1] += text.flush()
    terminal.tokens(pieces, drafted)
