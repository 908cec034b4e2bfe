"""Prompts on their way through a fixed number of rows."""

import collections
import dataclasses
import functools
import itertools
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from specdec_jax import decode, memory, programs, sharding, trace
from specdec_jax.acceptance import GreedyRule
from specdec_jax.buckets import Bucket, Packer
from specdec_jax.host import to_host
from specdec_jax.models.language_model import LanguageModel
from specdec_jax.prompts import Request
from specdec_jax.results import Chunk, Completion, GenerationResult, Timing
from specdec_jax.state import (
  DecodeState,
  Engine,
  Prefix,
  Weights,
  init_state,
  place,
  resume,
  shardings,
)
from specdec_jax.stats import Counts, Stats
from specdec_jax.stopping import Finish
from specdec_jax.texts import Texts, without_eos
from specdec_jax.types import AcceptanceRule, Array, Drafter

_ALL_BLOCKS = 2**31 - 1
# The newest tokens that a cache may lack: the last one; a last draft that was
# kept; and one more, since a row with room for one token drafts nothing.
_UNSEEN = 3


class Generation:
  """Advance it, read it, stop whenever you like.

  Requests wait for a row, in their order. As soon as one ends, the next is
  prefilled and takes its row; the others do not wait for the slowest. Requests
  that differ in their seeds alone and follow one another are prefilled once.

  Made by `SpeculativeDecoder.start`.
  """

  def __init__(
    self,
    target: LanguageModel,
    drafter: Drafter,
    rule: AcceptanceRule,
    requests: Sequence[Request],
    rows: int,
    prefix: Prefix | None = None,
    least_limit: int = 0,
    traced: bool = False,
  ):
    """Compiles, and prefills what the rows have room for.

    Args:
      target: the model whose law the output has.
      drafter: bound to it.
      rule: of acceptance.
      requests: in their order.
      rows: how many run side by side.
      prefix: what a single request may begin with, see `prefix`.
      least_limit: of the caches: they have room for at least so many tokens.
      traced: whether to note what each block was made of.
    """
    _warn_of_short_draft(drafter, max(request.limit for request in requests))
    self._target = target
    self._prefix = prefix
    self._requests = requests
    self._waiting = collections.deque(range(len(requests)))
    self._completions: dict[int, Completion] = {}
    static_drafter, draft_weights = drafter.split()
    params = [request.params for request in requests]
    if all(p.temperature == 0 for p in params):
      rule = GreedyRule()
    self._engine = Engine(target.network, static_drafter, rule)
    self._noted = any(p.logprobs for p in params), traced
    self._texts = Texts(requests, target)
    stops = self._texts.stops
    self._packer = Packer(
      target.network.vocab_size,
      target.eos_ids,
      any(p.controlled for p in params),
      stops,
    )
    self._weights = Weights(
      target.params,
      draft_weights,
      sharding.replicate(stops.table_AV, target.mesh) if stops else None,
    )
    self._bucket = Bucket.of(
      rows,
      max(least_limit, *(request.limit for request in requests)),
      self._engine,
      sharding.sizes(target.mesh)[sharding.DATA],
    )
    # Which request is in each row, and the loop's seconds when it entered.
    self._rows: list[int | None] = [None] * rows
    self._entered = [0.0] * rows
    self._compile_seconds = self._prefill_seconds = self._decode_seconds = 0.0
    self._prefilled_tokens = 0
    # The newest prefill and its rows, while the next request wants one of them.
    self._source: tuple[dict[Request, int], DecodeState] | None = None
    self._state = self._fill(None)
    self._run = programs.stepper(
      decode.run,
      (self._engine,),
      self._weights,
      self._state,
      *[np.int32(0)] * 2,
    )
    self._compile_seconds += self._run.seconds

  @property
  def done(self) -> bool:
    """Whether every request has ended."""
    return len(self._completions) == len(self._requests)

  @property
  def prefilled_tokens(self) -> int:
    """How many tokens of prompts were prefilled, those kept not counted."""
    return self._prefilled_tokens

  def prefix(self) -> Prefix:
    """A single request's text and its caches, for the next to begin with."""
    host = self._read()
    seen = max(int(host.length_B[0]) - _UNSEEN, 0)
    tokens = host.tokens_BS[0, :seen].tolist()
    return Prefix(tuple(tokens), self._state.target, self._state.draft)

  @property
  def completions(self) -> dict[int, Completion]:
    """Those that have ended, by the number of their request."""
    return dict(self._completions)

  def advance(self, blocks: int | None = None) -> None:
    """Runs the loop for at most `blocks` blocks; to the end by default.

    With requests waiting, it comes back sooner, when one has taken a row.
    """
    while not self.done:
      begin = time.perf_counter()
      running = len([row for row in self._rows if row is not None])
      self._state = self._run.call(
        self._weights,
        self._state,
        np.int32(_ALL_BLOCKS if blocks is None else blocks),
        np.int32(running if self._waiting else 1),
      )
      jax.block_until_ready(self._state)
      self._decode_seconds += time.perf_counter() - begin
      self._harvest()
      self._state = self._fill(self._state)
      if blocks is not None:
        return

  def stream(self, blocks: int = 1) -> Iterator[Chunk]:
    """Advances a single request to its end, and yields what came each time."""
    (request,) = self._requests
    text = self._texts.reader(request)
    seen = len(request.tokens)
    reason = None
    while reason is None:
      self.advance(blocks)
      host = self._read()
      new = slice(seen, int(host.length_B[0]))
      tokens = host.tokens_BS[0, new].tolist()
      drafted = host.drafted_BS[0, new].tolist()
      reason, seen = _reason(host.finish_B[0]), new.stop
      pieces, rest = [""] * len(tokens), ""
      if text is not None:
        shown = without_eos(tokens, reason)
        pieces[: len(shown)] = text.push(shown)
        rest = text.flush() if reason else ""
      if pieces:
        pieces[-1] += rest
      yield Chunk("".join(pieces) or rest, tokens, drafted, pieces, reason)

  def result(self) -> GenerationResult:
    """What there is so far; what has not ended has no finish reason."""
    completions = dict(self._completions)
    host = None if self.done else self._read()
    for row, index in enumerate(self._rows):
      if index is not None and host is not None:
        completions[index] = self._completion(host, row, index)
    for index in self._waiting:
      completions[index] = _not_begun(self._engine)
    return GenerationResult(
      [completions[index] for index in range(len(self._requests))],
      Timing(
        self._compile_seconds, self._prefill_seconds, self._decode_seconds
      ),
    )

  def _fill(self, state: DecodeState | None) -> DecodeState:
    """Puts requests that wait in the free rows."""
    while state is None or (self._waiting and None in self._rows):
      state = self._enter(state)
    return state

  def _enter(self, state: DecodeState | None) -> DecodeState:
    """Puts requests in free rows: as many as one prefill is for."""
    free = [row for row, index in enumerate(self._rows) if index is None]
    waiting = [
      self._requests[index]
      for index in itertools.islice(self._waiting, len(free))
    ]
    sources, source = self._source or ({}, None)
    entering = list(itertools.takewhile(lambda r: r in sources, waiting))
    if not entering:
      source, entering = None, waiting
      distinct = dict.fromkeys(entering)
      sources = {request: row for row, request in enumerate(distinct)}
    rows = free[: len(entering)]
    for row in rows:
      self._rows[row] = self._waiting.popleft()
      self._entered[row] = self._decode_seconds
    # The next may be a sample of the same prompt, and take its row from here.
    more = bool(self._waiting) and (self._requests[self._waiting[0]] in sources)
    if state is None and len(sources) == len(entering) and not more:
      return self._prefilled(entering, self._bucket)
    if state is None:
      state = self._initial([], self._bucket)
    if source is None:
      bucket = self._bucket.with_rows(len(sources))
      source = self._prefilled(list(sources), bucket)
    self._source = (sources, source) if more else None
    return self._placed(
      source, state, [sources[request] for request in entering], rows, entering
    )

  def _placed(
    self,
    source: DecodeState,
    state: DecodeState,
    take: Sequence[int],
    rows: Sequence[int],
    requests: Sequence[Request],
  ) -> DecodeState:
    """The state with these rows of `source` in it, see `state.place`."""

    def padded(values: Iterable[int], fill: int, dtype: type) -> Any:
      # Powers of two: few sizes to compile for.
      array_G: Any = np.full(1 << (len(rows) - 1).bit_length(), fill, dtype)
      array_G[: len(rows)] = [*values]
      return array_G

    values = (
      padded(take, 0, np.int32),
      padded(rows, self._bucket.batch, np.int32),
      padded((request.seed for request in requests), 0, np.uint32),
    )
    put = programs.stepper(place, (), source, state, *values)
    self._compile_seconds += put.seconds
    begin = time.perf_counter()
    state = put.call(source, state, *values)
    jax.block_until_ready(state)
    self._prefill_seconds += time.perf_counter() - begin
    return state

  def _prefilled(
    self, requests: Sequence[Request], bucket: Bucket
  ) -> DecodeState:
    """A state of these requests, ready for the first block."""
    state = self._initial(requests, bucket)
    first = 0
    if self._prefix is not None:
      first = _in_common(self._prefix.tokens, requests[0].tokens)
      kept = self._prefix.target, self._prefix.draft
      paste = programs.stepper(resume, (), kept, state)
      self._compile_seconds += paste.seconds
      state, self._prefix = paste.call(kept, state), None
    # The last token of a prompt is left to the first block.
    longest = max(len(request.tokens) for request in requests) - 1
    chunk, count = bucket.chunks(longest - first)
    values = np.int32(first), np.int32(count)
    fill = programs.stepper(
      decode.prefill, (self._engine, chunk), self._weights, state, *values
    )
    self._compile_seconds += fill.seconds
    begin = time.perf_counter()
    state = fill.call(self._weights, state, *values)
    jax.block_until_ready(state)
    self._prefilled_tokens += sum(len(r.tokens) - first for r in requests)
    self._prefill_seconds += time.perf_counter() - begin
    return state

  def _initial(
    self, requests: Sequence[Request], bucket: Bucket
  ) -> DecodeState:
    """The state before prefill, on the mesh."""
    static = (self._engine, *self._noted)
    mesh = self._target.mesh
    batch = self._packer.pack(requests, bucket)
    # Shapes first: what does not fit is refused before any of it is made.
    shapes = jax.eval_shape(functools.partial(init_state, *static), batch)
    where = shardings(self._engine, mesh, shapes)
    memory.check_fits(shapes, where, bucket, mesh)
    make = programs.maker(init_state, static, where, batch)
    self._compile_seconds += make.seconds
    return make.call(batch)

  def _harvest(self) -> None:
    """Takes down what has ended."""
    finish_B = to_host(self._state.finish_B)
    ended = [
      (row, index)
      for row, index in enumerate(self._rows)
      if index is not None and finish_B[row] != Finish.RUNNING
    ]
    host = self._read() if ended else None
    for row, index in ended:
      assert host is not None
      self._completions[index] = self._completion(host, row, index)
      self._rows[row] = None

  def _read(self) -> DecodeState:
    """The state on the host, without the caches."""
    return to_host(
      dataclasses.replace(self._state, target=(), draft=(), history=None)
    )

  def _completion(self, host: DecodeState, row: int, index: int) -> Completion:
    request = self._requests[index]
    new = slice(len(request.tokens), host.length_B[row])
    tokens = host.tokens_BS[row, new].tolist()
    reason = _reason(host.finish_B[row])
    log_probs = None
    if host.log_probs_BS is not None and request.params.logprobs:
      log_probs = host.log_probs_BS[row, new].tolist()
    blocks = None
    if host.trace is not None:
      blocks = trace.blocks(host.trace, row, tokens, len(request.tokens))
    return Completion(
      tokens=tokens,
      pieces=self._texts.pieces(request, tokens, reason),
      finish_reason=reason,
      drafted=host.drafted_BS[row, new].tolist(),
      log_probs=log_probs,
      blocks=blocks,
      stats=Stats.of_row(host.counts, row),
      seconds=self._decode_seconds - self._entered[row],
    )


def _not_begun(engine: Engine) -> Completion:
  stats = Stats.of_row(Counts.zero(1, engine.drafter.num_draft_tokens), 0)
  return Completion([], [], None, [], None, None, stats, 0.0)


def _warn_of_short_draft(drafter: Drafter, limit: int) -> None:
  horizon = drafter.max_length
  if horizon is not None and limit > horizon:
    # The same words each time, so that Python says it once.
    warnings.warn(
      f"the draft's context of {horizon} tokens is shorter than this "
      "generation: past it nothing is drafted, and tokens come at the speed "
      "of plain decoding",
      stacklevel=5,
    )


def _in_common(kept: Sequence[int], tokens: Sequence[int]) -> int:
  """How many tokens both begin with, the last of `tokens` apart."""
  pairs = zip(kept, tokens[:-1], strict=False)
  differ = (place for place, (a, b) in enumerate(pairs) if a != b)
  return next(differ, min(len(kept), len(tokens) - 1))


def _reason(finish: Array) -> str | None:
  reason = Finish(int(finish))
  return None if reason == Finish.RUNNING else reason.name.lower()
