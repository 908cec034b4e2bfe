"""Times the parts of a block, each run alone: draft, verify, accept.

Each part runs in a loop of its own on the device, as it does in a generation,
so that the host's calls do not count. What a round feeds depends on what the
one before has given, so that the compiler cannot take anything out of the loop.
"""

import dataclasses
import functools
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from specdec_jax import decode, programs, sharding
from specdec_jax.acceptance import GreedyRule
from specdec_jax.bench.cells import Cell
from specdec_jax.bench.records import PassTimes
from specdec_jax.bench.ways import Pair
from specdec_jax.buckets import Packer
from specdec_jax.drafters import NoDraft, PromptLookup
from specdec_jax.prompts import Request
from specdec_jax.sampling import SamplingParams
from specdec_jax.state import (
  DecodeState,
  Engine,
  Weights,
  init_state,
  shardings,
)
from specdec_jax.types import Array, Proposal, PyTree, Verdict

_SECONDS = 0.04  # that one timing takes at least
_MOST_ROUNDS = 256
_REPEATS = 3


class _Timed(NamedTuple):
  """A part of a block, ready to be timed.

  Attributes:
    call: runs it so many times, and blocks.
    rounds: so many that the clock is fine enough.
  """

  call: Callable[[int], None]
  rounds: int

  def seconds(self) -> float:
    """Of one round."""
    begin = time.perf_counter()
    self.call(self.rounds)
    return (time.perf_counter() - begin) / self.rounds


class Timer:
  """Times the parts of the blocks of some cells, whenever it is asked to.

  So that parts and the block that is made of them meet the same moods of the
  machine, each is timed right after a run of its cell.
  """

  def __init__(
    self,
    pair: Pair,
    cells: Sequence[Cell],
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
  ):
    """Compiles, and warms up.

    Args:
      pair: the models.
      cells: of one setting.
      prompts: token ids of the rows.
      max_new_tokens: of each; with the longest prompt it makes the cache's
        size.
    """
    self._slots: dict[Cell, int] = {}
    self._parts: dict[Cell, tuple[_Timed, ...]] = {}
    # Passes of the target that judge as many tokens are one and the same.
    passes: dict[int, _Timed] = {}
    for cell in cells:
      maker = _Maker(pair, cell, prompts, max_new_tokens)
      count = cell.num_draft_tokens
      if count not in passes:
        passes[count] = maker.verify()
      self._slots[cell] = maker.slots
      self._parts[cell] = maker.draft(), passes[count], maker.accept()

  def time(self, cell: Cell) -> PassTimes:
    """The parts of a cell's block, medians of some repeats."""
    repeats = [
      [part.seconds() for part in self._parts[cell]] for _ in range(_REPEATS)
    ]
    draft, verify, accept = map(statistics.median, zip(*repeats, strict=True))
    # Plain decoding drafts nothing; its empty loop is no part of a block.
    draft = 0.0 if cell.is_plain else draft
    return PassTimes(self._slots[cell], draft, verify, accept)


class _Maker:
  """Compiles the parts of a cell's block."""

  def __init__(
    self,
    pair: Pair,
    cell: Cell,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
  ):
    self._pair, self._cell = pair, cell
    self._requests = [
      Request(
        tuple(prompt),
        SamplingParams(temperature=cell.temperature),
        max_new_tokens,
        seed,
      )
      for seed, prompt in enumerate(prompts)
    ]
    self._engine = pair.engine(cell)
    self._weights = Weights(pair.target.params, pair.drafter(cell).split()[1])
    limit = max(request.limit for request in self._requests)
    self._bucket = pair.bucket(cell, limit)
    self.slots = self._bucket.slots

  def draft(self) -> _Timed:
    """The proposal."""
    state = self._state(self._engine)
    carry = dataclasses.replace(state, target=()), self._proposal(state)
    return _timed(_draft, self._engine, self._weights, carry)

  def verify(self) -> _Timed:
    """The target's pass; the same for all drafters and rules."""
    engine = self._judging(GreedyRule())
    state = self._state(engine)
    carry = state, self._zeros(self._logits())
    return _timed(_verify, engine, self._weights, carry)

  def accept(self) -> _Timed:
    """The law and the rule."""
    engine = self._judging(self._engine.rule)
    state = dataclasses.replace(self._state(engine), target=())
    proposal = self._proposal(self._state(self._engine))
    logits_BTV = jax.random.normal(
      jax.random.key(0, impl="threefry2x32"), self._logits().shape
    )
    kept_B = jnp.zeros_like(state.length_B)
    carry = state, (self._placed(logits_BTV), self._placed(kept_B)), proposal
    return _timed(_accept, engine, self._weights, carry)

  def _judging(self, rule: Any) -> Engine:
    """An engine without a draft: programs that need none are the same."""
    count = self._cell.num_draft_tokens
    drafter = PromptLookup(count) if count else NoDraft()
    return Engine(self._pair.target.network, drafter, rule)

  def _state(self, engine: Engine) -> DecodeState:
    """The rows before their first block. What caches hold costs no time."""
    target = self._pair.target
    packer = Packer(engine.target.vocab_size, target.eos_ids, False, None)
    batch = packer.pack(self._requests, self._bucket)
    static = (engine, False, False)
    shapes = jax.eval_shape(functools.partial(init_state, *static), batch)
    where = shardings(engine, target.mesh, shapes)
    return programs.maker(init_state, static, where, batch).call(batch)

  def _proposal(self, state: DecodeState) -> Proposal:
    shapes, _ = jax.eval_shape(
      functools.partial(decode.propose, self._engine), self._weights, state
    )
    return self._zeros(shapes)

  def _logits(self) -> jax.ShapeDtypeStruct:
    shape = (
      self._bucket.batch,
      self._cell.num_draft_tokens + 1,
      self._engine.target.vocab_size,
    )
    return jax.ShapeDtypeStruct(shape, jnp.float32)

  def _zeros(self, shapes: PyTree) -> PyTree:
    return self._placed(
      jax.tree.map(lambda it: jnp.zeros(it.shape, it.dtype), shapes)
    )

  def _placed(self, tree: PyTree) -> PyTree:
    mesh = self._pair.target.mesh
    return jax.device_put(tree, sharding.of_rows(mesh, tree))


def _timed(
  part: Callable[..., PyTree], engine: Engine, weights: Weights, carry: PyTree
) -> _Timed:
  """Compiles a part, warms it up, and finds how often to run it."""
  program = programs.stepper(part, (engine,), weights, carry, np.int32(0))

  def call(rounds: int) -> None:
    nonlocal carry
    carry = program.call(weights, carry, np.int32(rounds))
    jax.block_until_ready(carry)

  call(1)
  once = _Timed(call, 1).seconds()
  rounds = int(_SECONDS / max(once, 1e-6))
  return _Timed(call, min(max(rounds, 1), _MOST_ROUNDS))


def _never(tokens: Array) -> Array:
  """0, but only tokens of a run can show it: none is negative."""
  return (tokens < 0).astype(jnp.int32)


def _shifted(state: DecodeState, by_B: Array) -> DecodeState:
  """The state with other texts and seeds, as far as the compiler knows."""
  return dataclasses.replace(
    state,
    tokens_BS=state.tokens_BS + by_B[:, None],
    seed_B=state.seed_B + by_B.astype(jnp.uint32),
  )


def _draft(
  engine: Engine, weights: Weights, carry: PyTree, rounds: Array
) -> PyTree:
  """Drafts again and again at the same place."""

  def body(_: Array, carry: PyTree) -> PyTree:
    state, proposal = carry
    by_B = _never(proposal.length_B)
    proposal, draft = decode.propose(engine, weights, _shifted(state, by_B))
    by_B = _never(proposal.tokens_BK.sum(axis=1))
    state = _shifted(dataclasses.replace(state, draft=draft), by_B)
    return state, proposal

  return lax.fori_loop(0, rounds, body, carry)


def _verify(
  engine: Engine, weights: Weights, carry: PyTree, rounds: Array
) -> PyTree:
  """Judges the same drafts again and again."""
  count = engine.drafter.num_draft_tokens

  def body(_: Array, carry: PyTree) -> PyTree:
    state, logits_BTV = carry
    # No logit is so large.
    by_B = (logits_BTV[:, 0, 0] > 1e30).astype(jnp.int32)
    state = _shifted(state, by_B)
    batch = state.length_B.shape[0]
    drafts_BK = state.tokens_BS[:, :1] + jnp.zeros((batch, count), jnp.int32)
    proposal = Proposal(drafts_BK, jnp.full(batch, count), None)
    logits_BTV, _, cache = decode.verify(engine, weights, state, proposal)
    return dataclasses.replace(state, target=cache), logits_BTV

  return lax.fori_loop(0, rounds, body, carry)


def _accept(
  engine: Engine, weights: Weights, carry: PyTree, rounds: Array
) -> PyTree:
  """Applies law and rule to the same logits again and again."""
  del weights
  batch, count = carry[0].length_B.shape[0], engine.drafter.num_draft_tokens

  def body(_: Array, carry: PyTree) -> PyTree:
    state, (logits_BTV, kept_B), proposal = carry
    by_B = _never(kept_B)
    state = _shifted(state, by_B)
    logits_BTV += by_B[:, None, None].astype(jnp.float32)
    judged = decode.judge(
      engine,
      state,
      proposal._replace(length_B=jnp.full(batch, count)),
      logits_BTV,
    )
    verdict: Verdict = judged.verdict
    seen_B = jnp.minimum(verdict.kept_B, verdict.next_B)
    return state, (logits_BTV, seen_B), proposal

  return lax.fori_loop(0, rounds, body, carry)
