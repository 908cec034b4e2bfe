"""The core: a batch's state, prefill, one step, and the loop.

A generation is two programs. `prefill` runs the prompts through the models;
`run` repeats `step` - draft, verify, accept, commit - in a `lax.while_loop`
until every row has ended. Both map a `DecodeState` to the next.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from specdec_jax import sampling, stopping
from specdec_jax.arrays import put, window
from specdec_jax.noise import Noise
from specdec_jax.sampling import Law
from specdec_jax.stats import Counts
from specdec_jax.stopping import Finish
from specdec_jax.types import (
  AcceptanceRule,
  Array,
  Drafter,
  Features,
  Network,
  Proposal,
  PyTree,
  Verdict,
  View,
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
  """

  target: PyTree
  draft: PyTree


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
    target: the target's cache. A slot is valid when it is behind the length.
    draft: the drafter's own state.
    drafted_BS: which tokens the draft wrote.
    log_probs_BS: each token's log-probability under the target's raw logits;
      None when no row asks for it.
    counts: statistics.
  """

  tokens_BS: Array
  length_B: Array
  limit_B: Array
  finish_B: Array
  seed_B: Array
  eos_BE: Array
  law: Law
  target: PyTree
  draft: PyTree
  drafted_BS: Array
  log_probs_BS: Array | None
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
  """

  tokens_BS: Array
  length_B: Array
  limit_B: Array
  seed_B: Array
  eos_BE: Array
  law: Law


def init_state(engine: Engine, log_probs: bool, rows: Batch) -> DecodeState:
  """The state before prefill. Rows without room for a token are finished.

  Args:
    engine: what the state is for.
    log_probs: whether to record log-probabilities.
    rows: prompts and parameters.
  """
  batch, slots = rows.tokens_BS.shape
  done_B = rows.length_B >= rows.limit_B
  return DecodeState(
    tokens_BS=rows.tokens_BS,
    length_B=rows.length_B,
    limit_B=rows.limit_B,
    finish_B=jnp.where(done_B, Finish.LENGTH, Finish.RUNNING).astype(jnp.int32),
    seed_B=rows.seed_B,
    eos_BE=rows.eos_BE,
    law=rows.law,
    target=engine.target.init_cache(batch, slots),
    draft=engine.drafter.init(batch, slots),
    drafted_BS=jnp.zeros((batch, slots), bool),
    log_probs_BS=jnp.zeros((batch, slots)) if log_probs else None,
    counts=Counts.zero(batch, engine.drafter.num_draft_tokens),
  )


def replace_row(
  state: DecodeState, row: Array, other: DecodeState
) -> DecodeState:
  """Puts the only row of `other` in the place of row `row` of `state`."""
  return jax.tree.map(lambda a, b: a.at[row].set(b[0]), state, other)


def prefill(
  engine: Engine,
  chunk: int,
  weights: Weights,
  state: DecodeState,
  num_chunks: Array,
) -> DecodeState:
  """Fills the caches with the prompts, `chunk` tokens at a time.

  Args:
    engine: static.
    chunk: tokens of a pass; static, divides S.
    weights: of target and drafter.
    state: from `init_state`.
    num_chunks: enough to cover all but the last token of every prompt.
  """
  view = _look(engine, state)

  def fill(index, caches):
    target, draft = caches
    start_B = jnp.full_like(state.length_B, index * chunk)
    _, tapped_BTF, target = engine.target.forward(
      weights.target,
      window(state.tokens_BS, start_B, chunk),
      start_B,
      target,
      engine.drafter.taps,
    )
    count_B = jnp.clip(state.length_B - 1 - start_B, 0, chunk)
    features = Features(tapped_BTF, start_B, count_B)
    draft = engine.drafter.observe(weights.draft, draft, view, features)
    return target, draft

  target, draft = lax.fori_loop(
    0, num_chunks, fill, (state.target, state.draft)
  )
  return dataclasses.replace(state, target=target, draft=draft)


def run(
  engine: Engine, weights: Weights, state: DecodeState, max_steps: Array
) -> DecodeState:
  """Steps until every row has ended, or `max_steps` times."""

  def running(carry):
    state, steps = carry
    return jnp.any(state.active_B) & (steps < max_steps)

  def advance(carry):
    state, steps = carry
    return step(engine, weights, state), steps + 1

  return lax.while_loop(running, advance, (state, jnp.int32(0)))[0]


def step(engine: Engine, weights: Weights, state: DecodeState) -> DecodeState:
  """One block of every row: draft, verify, accept, commit."""
  drafter, rule = engine.drafter, engine.rule
  # Draft.
  view = _look(engine, state)
  proposal, draft = drafter.propose(weights.draft, state.draft, view)
  proposal = _clip(proposal, state)
  # Verify: the newest token and its drafts through the target, in one pass.
  logits_BTV, tapped_BTF, cache = _verify(engine, weights, state, proposal)
  finite_BT = jnp.isfinite(logits_BTV).all(axis=-1)
  logits_BTV = jnp.where(finite_BT[..., None], logits_BTV, 0)
  proposal = _judgeable(proposal, finite_BT)
  # Accept.
  law_BTV = _law(engine, logits_BTV, state.law)
  verdict = rule(law_BTV, proposal, _noise(engine, state))
  # Commit.
  after = _commit(state, proposal, verdict, logits_BTV, finite_BT)
  after = dataclasses.replace(after, target=cache, draft=draft)
  if not drafter.taps:
    return after
  # The target has seen everything up to, and without, the new newest token.
  seen = Features(
    tapped_BTF, state.length_B - 1, after.length_B - state.length_B
  )
  draft = drafter.observe(weights.draft, draft, _look(engine, after), seen)
  return dataclasses.replace(after, draft=draft)


def _noise(engine: Engine, state: DecodeState) -> Noise:
  return Noise(state.seed_B, state.length_B, engine.rule.coupled)


def _law(engine: Engine, logits_BTV: Array, law: Law) -> Array:
  if not engine.rule.needs_law:
    return logits_BTV
  return sampling.log_probs(logits_BTV, law)


def _look(engine: Engine, state: DecodeState) -> View:
  """What a drafter may see of the state."""
  noise = _noise(engine, state)

  def draw(logits_BTV: Array, position_BT: Array) -> tuple[Array, Array | None]:
    law_BTV = _law(engine, logits_BTV, state.law)
    return engine.rule.draw(law_BTV, position_BT, noise)

  return View(
    state.tokens_BS, state.length_B, state.limit_B, state.active_B, draw
  )


def _clip(proposal: Proposal, state: DecodeState) -> Proposal:
  """Leaves room for the target's own token; finished rows draft nothing.

  How many drafts count depends on lengths alone, never on the tokens.
  """
  room_B = jnp.where(state.active_B, state.limit_B - state.length_B - 1, 0)
  return proposal._replace(length_B=jnp.clip(proposal.length_B, 0, room_B))


def _verify(
  engine: Engine, weights: Weights, state: DecodeState, proposal: Proposal
) -> tuple[Array, Array, PyTree]:
  """The target's logits and features after each prefix of the drafts."""
  committed, width = engine.committed_rows, proposal.tokens_BK.shape[1]
  start_B = jnp.maximum(state.length_B - committed, 0)
  tokens_BS = put(state.tokens_BS, state.length_B, proposal.tokens_BK)
  hidden_BTD, tapped_BTF, cache = engine.target.forward(
    weights.target,
    window(tokens_BS, start_B, committed + width),
    start_B,
    state.target,
    engine.drafter.taps,
  )
  logits_BTV = engine.target.head(weights.target, hidden_BTD)
  if committed > 1:
    wanted_B = state.length_B - 1 - start_B
    logits_BTV = window(logits_BTV, wanted_B, width + 1)
    tapped_BTF = window(tapped_BTF, wanted_B, width + 1)
  return logits_BTV, tapped_BTF, cache


def _judgeable(proposal: Proposal, finite_BT: Array) -> Proposal:
  """Cuts the drafts that would be judged by logits which are not finite.

  Whether a position is cut depends on the drafts before it, not on its own:
  the law of what is kept stays the target's.
  """
  sound_B = jnp.cumprod(finite_BT[:, :-1].astype(jnp.int32), axis=1).sum(axis=1)
  return proposal._replace(length_B=jnp.minimum(proposal.length_B, sound_B))


def _commit(
  state: DecodeState,
  proposal: Proposal,
  verdict: Verdict,
  logits_BTV: Array,
  finite_BT: Array,
) -> DecodeState:
  """Appends the kept drafts and the token after them; ends rows."""
  kept_B = verdict.kept_B
  # The token after the kept drafts comes from their last row of logits.
  sound_B = jnp.take_along_axis(finite_BT, kept_B[:, None], axis=1)[:, 0]
  token_BT = jnp.pad(proposal.tokens_BK, ((0, 0), (0, 1)))
  token_BT = put(token_BT, kept_B, verdict.next_B[:, None])
  count_B, eos_B = stopping.until_eos(token_BT, kept_B + sound_B, state.eos_BE)
  count_B = jnp.where(state.active_B, count_B, 0)
  length_B = state.length_B + count_B

  finish_B = jnp.select(
    [~state.active_B, eos_B, ~sound_B, length_B >= state.limit_B],
    [state.finish_B, Finish.EOS, Finish.NONFINITE, Finish.LENGTH],
    Finish.RUNNING,
  ).astype(jnp.int32)

  kept_B = jnp.minimum(kept_B, count_B)
  # Drafts behind the row's end do not count.
  drafts_B = jnp.where(
    eos_B, jnp.minimum(count_B, proposal.length_B), proposal.length_B
  )
  by_draft_BT = jnp.arange(token_BT.shape[1])[None] < kept_B[:, None]
  log_probs_BS = state.log_probs_BS
  if log_probs_BS is not None:
    log_p_BTV = jax.nn.log_softmax(logits_BTV, axis=-1)
    log_p_BT = jnp.take_along_axis(log_p_BTV, token_BT[..., None], axis=-1)
    log_probs_BS = put(log_probs_BS, state.length_B, log_p_BT[..., 0])
  return dataclasses.replace(
    state,
    tokens_BS=put(state.tokens_BS, state.length_B, token_BT),
    length_B=length_B,
    finish_B=finish_B,
    drafted_BS=put(state.drafted_BS, state.length_B, by_draft_BT),
    log_probs_BS=log_probs_BS,
    counts=state.counts.add(state.active_B, count_B, drafts_B, kept_B),
  )
