"""Measures a generation against plain decoding, and compares the tokens.

Plain decoding is the same engine without a drafter: same loop, same rule, same
way of advancing. Nothing that is timed was compiled or run for the first time.
"""

import dataclasses
import statistics
import time
from collections.abc import Sequence

import specdec_jax as sd
from specdec_jax.bench.identity import first_difference
from specdec_jax.cli.batches import Batch, finish
from specdec_jax.cli.job import ALONE, Job

_MAX_ROUNDS = 3
_SECONDS = 10.0  # no further round is begun after these
_WARM_UP_BLOCKS = 2


@dataclasses.dataclass(frozen=True)
class Speed:
  """Tokens and the seconds they took.

  Attributes:
    new_tokens: of all rows.
    prefill: seconds of the prompts.
    decode: seconds of the loop.
  """

  new_tokens: int
  prefill: float
  decode: float

  @classmethod
  def median(cls, results: Sequence[sd.GenerationResult]) -> "Speed":
    """The speed of runs that gave the same tokens."""
    return cls(
      results[0].stats.new_tokens,
      statistics.median(r.timing.prefill for r in results),
      statistics.median(r.timing.decode for r in results),
    )

  @classmethod
  def total(cls, speeds: Sequence["Speed"]) -> "Speed":
    """The speed of batches that ran one after another."""
    return cls(
      sum(speed.new_tokens for speed in speeds),
      sum(speed.prefill for speed in speeds),
      sum(speed.decode for speed in speeds),
    )

  @property
  def decode_rate(self) -> float:
    """Tokens per second of the loop."""
    return self.new_tokens / max(self.decode, 1e-9)

  @property
  def whole_rate(self) -> float:
    """Tokens per second, prefill included."""
    return self.new_tokens / max(self.prefill + self.decode, 1e-9)


@dataclasses.dataclass(frozen=True)
class Comparison:
  """Plain decoding of a batch beside what the decoder made of it.

  Attributes:
    plain: what plain decoding wrote.
    speculative_speed: median of the timed runs.
    plain_speed: the same of plain decoding.
    rounds: how many timed runs each had.
  """

  plain: sd.GenerationResult
  speculative_speed: Speed
  plain_speed: Speed
  rounds: int

  @property
  def speedup(self) -> float | None:
    """Of the loop; None before plain decoding has written anything."""
    if not self.plain_speed.new_tokens:
      return None
    return self.speculative_speed.decode_rate / self.plain_speed.decode_rate


def compare(
  batch: Batch,
  decoder: sd.SpeculativeDecoder,
  plain: sd.SpeculativeDecoder,
  shown: sd.GenerationResult,
  job: Job = ALONE,
) -> tuple[Comparison | None, bool]:
  """Times both ways in turn, up to three rounds where they are quick.

  Args:
    batch: the prompts.
    decoder: the one to measure. It has run this batch before.
    plain: the one to compare with.
    shown: what `decoder` wrote then.
    job: the processes that run them together.

  Returns:
    The comparison, None if there is nothing to compare with, and whether
    Ctrl-C ended it early.
  """
  ways = (plain, decoder)
  runs: tuple[list[sd.GenerationResult], ...] = ([], [])
  interrupted = False
  try:
    if batch.trace:  # it takes time, and is another program
      batch = dataclasses.replace(batch, trace=False)
      batch.start(decoder).advance(_WARM_UP_BLOCKS)
    batch.start(plain).advance(_WARM_UP_BLOCKS)
    begin = time.perf_counter()
    for turn in range(2 * _MAX_ROUNDS):
      way = turn % 2
      late = time.perf_counter() - begin > _SECONDS
      if turn and way == 0 and job.agree(late):
        break
      result, interrupted = finish(batch.start(ways[way]), job=job)
      # Part of a run is worth keeping only where there is no whole one.
      if not (interrupted and runs[way]):
        runs[way].append(result)
      if interrupted:
        break
  except KeyboardInterrupt:
    interrupted = True
  theirs, ours = runs
  if not theirs:
    return None, interrupted
  # After an interrupt, what was shown stands in for a timed run.
  speeds = Speed.median(ours or [shown]), Speed.median(theirs)
  return Comparison(theirs[0], *speeds, rounds=len(ours) or 1), interrupted


def identical(ours: sd.Completion, plain: sd.Completion) -> bool | None:
  """Whether both wrote the same tokens.

  None where one was interrupted, and they agree as far as both got.
  """
  if first_difference(ours.tokens, plain.tokens) is not None:
    return False
  if None in (ours.finish_reason, plain.finish_reason):
    return None
  return len(ours.tokens) == len(plain.tokens)
