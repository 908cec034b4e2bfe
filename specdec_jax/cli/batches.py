"""Runs prompts through a decoder, and loses nothing at Ctrl-C."""

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence

import specdec_jax as sd
from specdec_jax.cli.job import ALONE, Job
from specdec_jax.cli.prompts_file import NamedPrompt
from specdec_jax.cli.terminal import Terminal
from specdec_jax.prompts import check_request, encode_all

# Ctrl-C is answered between advances: about so many seconds apart.
_ADVANCE_SECONDS = 0.4
_MOST_BLOCKS = 2**20


@dataclasses.dataclass(frozen=True)
class Batch:
  """Prompts that go through the same rows, ready to start.

  Attributes:
    prompts: as they were given, one for each sample.
    tokens: as the target reads them.
    sampling: of each.
    max_new_tokens: of each.
    rows: how many run side by side.
    trace: whether to note what each block is made of.
  """

  prompts: list[NamedPrompt]
  tokens: list[list[int]]
  sampling: list[sd.SamplingParams]
  max_new_tokens: int
  rows: int
  trace: bool = False

  def start(self, decoder: sd.SpeculativeDecoder) -> sd.Generation:
    """Compiles and prefills."""
    return decoder.start(
      self.tokens,
      max_new_tokens=self.max_new_tokens,
      sampling=self.sampling,
      batch_size=self.rows,
      trace=self.trace,
    )

  def cut(self, size: int) -> list["Batch"]:
    """The same in batches of at most `size`."""
    return [
      self.part(begin, begin + size)
      for begin in range(0, len(self.prompts), size)
    ]

  def part(self, begin: int, end: int | None = None) -> "Batch":
    """Some of the prompts."""
    some = slice(begin, end)
    return dataclasses.replace(
      self,
      prompts=self.prompts[some],
      tokens=self.tokens[some],
      sampling=self.sampling[some],
    )


def read(
  prompts: Sequence[NamedPrompt],
  target: sd.LanguageModel,
  sampling: sd.SamplingParams,
  *,
  max_new_tokens: int,
  num_samples: int,
  rows: int,
  chat_template: bool,
  trace: bool = False,
) -> Batch:
  """Reads all prompts with the target.

  Sample i of all takes seed + i, so that the text does not depend on what runs
  beside it.

  Raises:
    ValueError: a prompt is not for this target, or does not fit its context;
      it names the prompt.
  """
  tokens = [
    _encode(prompt, target, max_new_tokens, chat_template, sampling)
    for prompt in prompts
  ]
  repeated = [
    index for index in range(len(prompts)) for _ in range(num_samples)
  ]
  return Batch(
    [prompts[index] for index in repeated],
    [tokens[index] for index in repeated],
    [
      dataclasses.replace(sampling, seed=(sampling.seed + number) % 2**32)
      for number in range(len(repeated))
    ],
    max_new_tokens,
    rows,
    trace,
  )


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


def finish(
  generation: sd.Generation,
  ended: Callable[[int, sd.Completion], None] | None = None,
  job: Job = ALONE,
) -> tuple[sd.GenerationResult, bool]:
  """Runs a generation to its end, or to Ctrl-C.

  Args:
    generation: what to run.
    ended: called with each completion and its number, in their order, as soon
      as it and all before it have ended.
    job: the processes that run it together.

  Returns:
    What there is, and whether it was interrupted.
  """
  blocks, told, count = 1, 0, 0
  interrupted = False
  try:
    while not generation.done:
      begin = time.perf_counter()
      with job.ctrl_c_waits():
        generation.advance(blocks)
        completions = generation.completions
        while ended and told in completions:
          ended(told, completions[told])
          told += 1
      seconds = time.perf_counter() - begin
      if len(completions) == count:  # else it came back sooner
        more = int(blocks * _ADVANCE_SECONDS / max(seconds, 1e-6))
        blocks = job.agree(min(max(more, 1), 4 * blocks, _MOST_BLOCKS))
      count = len(completions)
  except KeyboardInterrupt:
    interrupted = True
  return generation.result(), interrupted


def stream(
  generation: sd.Generation, terminal: Terminal, job: Job = ALONE
) -> tuple[sd.GenerationResult, bool]:
  """Like `finish` for one prompt, and writes each block's text as it comes."""
  interrupted = write_chunks(generation.stream(), terminal, job) is None
  return generation.result(), interrupted


def write_chunks(
  chunks: Iterator[sd.Chunk], terminal: Terminal, job: Job = ALONE
) -> str | None:
  """Writes a stream's text as it comes.

  Returns:
    Why it ended; None after Ctrl-C.
  """
  reason, by_draft = None, False
  try:
    while reason is None:
      with job.ctrl_c_waits():
        chunk = next(chunks)
        terminal.status("")
        pieces, drafted = chunk.pieces, chunk.drafted
        if chunk.text and not pieces:
          # The row ended without a token: text of its last one was held back.
          pieces, drafted = [chunk.text], [by_draft]
        terminal.tokens(pieces, drafted)
        by_draft = bool(drafted) and drafted[-1]
        reason = chunk.finish_reason
  except KeyboardInterrupt:
    return None
  return reason
