"""What a generation is made of: its engine, its weights, its rows."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from specdec_jax import sharding
from specdec_jax.sampling import History, Law
from specdec_jax.stats import Counts
from specdec_jax.stopping import Finish
from specdec_jax.trace import Trace
from specdec_jax.types import (
  AcceptanceRule,
  Array,
  Drafter,
  Network,
  PyTree,
)


@dataclasses.dataclass(frozen=True)
class Engine:
  """All that is static about a generation: what its programs are made for.

  Attributes:
    target: the target, without its weights.
    drafter: the drafter, without its weights.
    rule: the acceptance rule.
  """

  target: Network
  drafter: Drafter
  rule: AcceptanceRule

  @property
  def committed_rows(self) -> int:
    """How many committed tokens a verify pass feeds before the drafts.

    The newest one is in no cache yet. More are fed, and computed again, only
    to reach the platform's least number of rows.
    """
    return max(1, self.target.min_rows - self.drafter.num_draft_tokens)

  @property
  def spare_slots(self) -> int:
    """How many slots past a row's limit a pass may write."""
    return self.drafter.num_draft_tokens


class Weights(NamedTuple):
  """The arguments of a program that are only read.

  Attributes:
    target: the target's weights.
    draft: what `Drafter.split` has taken off the drafter.
    stops: the automaton of the rows' stop strings, `[A, V]`, see
      `stopping.StopStrings`; None where no row has any.
  """

  target: PyTree
  draft: PyTree
  stops: Array | None = None


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class DecodeState:
  """A batch in the middle of its generation.

  Every leaf leads with B: a row enters or leaves by writing its entry of each.

  Attributes:
    tokens_BS: the prompt, then committed tokens; undefined at and past
      length_B.
    length_B: how many tokens are committed. The newest one is in no cache.
    limit_B: the length at which the row ends.
    finish_B: a `Finish`; 0 while the row is running.
    seed_B: the row's seed, uint32.
    eos_BE: the ids that end the row, padded with -1.
    law: the row's sampling parameters.
    history: which tokens the row holds; None where `law` does not ask.
    stop_B: where the automaton of stop strings is; None without.
    target: the target's cache. A slot is valid when it is behind the length.
    draft: the drafter's own state.
    drafted_BS: which tokens the draft wrote.
    log_probs_BS: each token's log-probability under the target's raw logits;
      None when no row asks for it.
    trace: what each block was made of; None unless asked for.
    counts: statistics.
  """

  tokens_BS: Array
  length_B: Array
  limit_B: Array
  finish_B: Array
  seed_B: Array
  eos_BE: Array
  law: Law
  history: History | None
  stop_B: Array | None
  target: PyTree
  draft: PyTree
  drafted_BS: Array
  log_probs_BS: Array | None
  trace: Trace | None
  counts: Counts

  @property
  def active_B(self) -> Array:
    return self.finish_B == Finish.RUNNING


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Batch:
  """What a generation starts from.

  Attributes:
    tokens_BS: prompts, padded with anything. S must be at least
      max(limit_B) + Engine.spare_slots: windows clamp, and a pass that does
      not fit would read the wrong tokens.
    length_B: lengths of the prompts, at least 1.
    limit_B: lengths at which the rows end.
    seed_B: seeds, uint32.
    eos_BE: ids that end each row, padded with -1.
    law: sampling parameters.
    stop_B: first states of the automaton of stop strings; None without.
  """

  tokens_BS: Array
  length_B: Array
  limit_B: Array
  seed_B: Array
  eos_BE: Array
  law: Law
  stop_B: Array | None = None


def init_state(
  engine: Engine, log_probs: bool, trace: bool, rows: Batch
) -> DecodeState:
  """The state before prefill. Rows without room for a token are finished.

  Args:
    engine: what the state is for.
    log_probs: whether to record log-probabilities.
    trace: whether to note what each block was made of.
    rows: prompts and parameters.
  """
  batch, slots = rows.tokens_BS.shape
  width = engine.drafter.num_draft_tokens
  done_B = rows.length_B >= rows.limit_B
  history = None
  if rows.law.controls is not None:
    history = History.of_prompts(
      rows.tokens_BS, rows.length_B, engine.target.vocab_size
    )
  return DecodeState(
    tokens_BS=rows.tokens_BS,
    length_B=rows.length_B,
    limit_B=rows.limit_B,
    finish_B=jnp.where(done_B, Finish.LENGTH, Finish.RUNNING).astype(jnp.int32),
    seed_B=rows.seed_B,
    eos_BE=rows.eos_BE,
    law=rows.law,
    history=history,
    stop_B=rows.stop_B,
    target=engine.target.init_cache(batch, slots),
    draft=engine.drafter.init(batch, slots),
    drafted_BS=jnp.zeros((batch, slots), bool),
    log_probs_BS=jnp.zeros((batch, slots)) if log_probs else None,
    trace=Trace.zero(batch, slots, width) if trace else None,
    counts=Counts.zero(batch, width),
  )


def shardings(
  engine: Engine, mesh: jax.sharding.Mesh, shapes: DecodeState
) -> DecodeState:
  """Where each leaf of a state lies, given its shape."""
  target = sharding.of_rows(mesh, shapes.target, engine.target.cache_axes)
  draft = sharding.of_rows(mesh, shapes.draft, engine.drafter.cache_axes)
  rest = dataclasses.replace(shapes, target=(), draft=())
  rows = sharding.of_rows(mesh, rest)
  return dataclasses.replace(rows, target=target, draft=draft)


class Prefix(NamedTuple):
  """The beginning of a text that has been through the models.

  Attributes:
    tokens: it, as far as both caches hold it.
    target: the target's cache, of one row.
    draft: the drafter's state, of one row.
  """

  tokens: tuple[int, ...]
  target: PyTree
  draft: PyTree


def resume(kept: tuple[PyTree, PyTree], state: DecodeState) -> DecodeState:
  """The state with the caches of another, of as many slots or of others."""

  def paste(new: Array, old: Array) -> Array:
    inside = tuple(slice(0, size) for size in new.shape)
    return lax.dynamic_update_slice(new, old[inside], (0,) * new.ndim)

  target, draft = kept
  return dataclasses.replace(
    state,
    target=jax.tree.map(paste, state.target, target),
    draft=jax.tree.map(paste, state.draft, draft),
  )


def place(
  source: DecodeState,
  state: DecodeState,
  take_G: Array,
  row_G: Array,
  seed_G: Array,
) -> DecodeState:
  """Puts rows of one state in the place of rows of another.

  Args:
    source: where they come from. A row may be taken several times.
    state: where they go; of the same slots.
    take_G: row of `source`.
    row_G: row of `state`; those at and past B are dropped.
    seed_G: the seed that it has there.
  """
  state = jax.tree.map(
    lambda a, b: a.at[row_G].set(b[take_G], mode="drop"), state, source
  )
  seed_B = state.seed_B.at[row_G].set(seed_G, mode="drop")
  return dataclasses.replace(state, seed_B=seed_B)
