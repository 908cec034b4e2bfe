"""One batch from its prompts to its end, a few blocks at a time."""

import dataclasses
import functools
import time
from collections.abc import Iterator

import jax
import numpy as np

from specdec_jax import buckets, decode, memory, programs, sharding
from specdec_jax.acceptance import GreedyRule
from specdec_jax.buckets import Bucket
from specdec_jax.models.language_model import LanguageModel
from specdec_jax.results import Chunk, GenerationResult, Timing
from specdec_jax.sampling import SamplingParams
from specdec_jax.stats import Stats
from specdec_jax.stopping import Finish
from specdec_jax.types import AcceptanceRule, Array, Drafter

_ALL_BLOCKS = 2**31 - 1


class Generation:
  """A batch on its way: advance it, read it, stop whenever you like.

  Made by `SpeculativeDecoder.start`.
  """

  def __init__(
    self,
    target: LanguageModel,
    drafter: Drafter,
    rule: AcceptanceRule,
    rows: list[list[int]],
    params: list[SamplingParams],
    limits: list[int],
  ):
    self._target = target
    self._params = params
    self._starts = [len(row) for row in rows]
    static_drafter, draft_weights = drafter.split()
    if all(p.temperature == 0 for p in params):
      rule = GreedyRule()
    self._engine = decode.Engine(target.network, static_drafter, rule)
    self._weights = decode.Weights(target.params, draft_weights)
    bucket = Bucket.of(
      self._starts, limits, self._engine, target.mesh.shape[sharding.DATA]
    )
    state, seconds = self._initial_state(rows, limits, bucket)
    num_chunks = np.int32(bucket.num_chunks)
    fill = programs.stepper(
      decode.prefill,
      (self._engine, bucket.chunk),
      self._weights,
      state,
      num_chunks,
    )
    self._run = programs.stepper(
      decode.run, (self._engine,), self._weights, state, np.int32(0)
    )
    self._compile_seconds = seconds + fill.seconds + self._run.seconds
    begin = time.perf_counter()
    self._state = fill.call(self._weights, state, num_chunks)
    jax.block_until_ready(self._state)
    self._prefill_seconds = time.perf_counter() - begin
    self._decode_seconds = 0.0

  def _initial_state(
    self, rows: list[list[int]], limits: list[int], bucket: Bucket
  ) -> tuple[decode.DecodeState, float]:
    """The state before prefill, on the mesh; the seconds it took to compile."""
    eos_ids = self._target.eos_ids
    static = (self._engine, any(p.logprobs for p in self._params))
    mesh = self._target.mesh
    # Shapes first: what does not fit is refused before any of it is made.
    shapes = jax.eval_shape(
      functools.partial(decode.init_state, *static),
      buckets.shapes(eos_ids, bucket),
    )
    shardings = sharding.of_state(mesh, shapes)
    memory.check_fits(shapes, shardings, bucket, mesh)
    batch = buckets.pack(rows, limits, self._params, eos_ids, bucket)
    make = programs.maker(decode.init_state, static, shardings, batch)
    return make.call(batch), make.seconds

  @property
  def done(self) -> bool:
    """Whether every row has ended."""
    return not bool(self._state.active_B.any())

  def advance(self, blocks: int | None = None) -> None:
    """Runs the loop for at most `blocks` blocks; to the end by default."""
    begin = time.perf_counter()
    steps = np.int32(_ALL_BLOCKS if blocks is None else blocks)
    self._state = self._run.call(self._weights, self._state, steps)
    jax.block_until_ready(self._state)
    self._decode_seconds += time.perf_counter() - begin

  def stream(self, blocks: int = 1) -> Iterator[Chunk]:
    """Advances a single row to its end, and yields what came each time."""
    tokenizer = self._target.tokenizer
    text = tokenizer.stream() if tokenizer else None
    seen = self._starts[0]
    reason = None
    while reason is None:
      self.advance(blocks)
      host = self._read()
      length, finish = int(host.length_B[0]), host.finish_B[0]
      tokens = host.tokens_BS[0, seen:length].tolist()
      drafted = host.drafted_BS[0, seen:length].tolist()
      reason = _reason(finish)
      seen = length
      pieces, rest = [""] * len(tokens), ""
      if text:
        shown = _without_eos(tokens, reason)
        pieces[: len(shown)] = text.push(shown)
        rest = text.flush() if reason else ""
      if pieces:
        pieces[-1] += rest
      yield Chunk("".join(pieces) or rest, tokens, drafted, pieces, reason)

  def result(self) -> GenerationResult:
    """What there is so far; rows still running have no finish reason."""
    host, rows = self._read(), len(self._starts)

    def new(array_BS: Array, row: int) -> list:
      return array_BS[row, self._starts[row] : host.length_B[row]].tolist()

    tokens = [new(host.tokens_BS, row) for row in range(rows)]
    reasons = [_reason(host.finish_B[row]) for row in range(rows)]
    return GenerationResult(
      texts=[self._text(*pair) for pair in zip(tokens, reasons, strict=True)],
      tokens=tokens,
      finish_reasons=reasons,
      drafted=[new(host.drafted_BS, row) for row in range(rows)],
      log_probs=[
        None
        if host.log_probs_BS is None or not self._params[row].logprobs
        else new(host.log_probs_BS, row)
        for row in range(rows)
      ],
      row_stats=Stats.of_rows(host.counts)[:rows],
      timing=Timing(
        self._compile_seconds, self._prefill_seconds, self._decode_seconds
      ),
    )

  def _read(self) -> decode.DecodeState:
    """The state on the host, without the caches."""
    return jax.device_get(dataclasses.replace(self._state, target=(), draft=()))

  def _text(self, tokens: list[int], reason: str | None) -> str:
    if not self._target.tokenizer:
      return ""
    return self._target.tokenizer.decode(_without_eos(tokens, reason))


def _reason(finish: Array) -> str | None:
  reason = Finish(int(finish))
  return None if reason == Finish.RUNNING else reason.name.lower()


def _without_eos(tokens: list[int], reason: str | None) -> list[int]:
  return tokens[:-1] if reason == "eos" else tokens
