"""The core: prefill, one step, and the loop.

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
from specdec_jax.state import DecodeState, Engine, Weights
from specdec_jax.stopping import Finish
from specdec_jax.types import (
  Array,
  Features,
  Proposal,
  PyTree,
  Verdict,
  View,
)


def prefill(
  engine: Engine,
  chunk: int,
  weights: Weights,
  state: DecodeState,
  first: Array,
  num_chunks: Array,
) -> DecodeState:
  """Fills the caches with the prompts, `chunk` tokens at a time.

  Args:
    engine: static.
    chunk: tokens of a pass; static, divides S.
    weights: of target and drafter.
    state: from `init_state`.
    first: the position to begin at; what is before it is in the caches.
    num_chunks: enough to cover all but the last token of every prompt.
  """
  view = _look(engine, state)
  last = state.tokens_BS.shape[1] - chunk

  def fill(index, caches):
    target, draft = caches
    start = jnp.minimum(first + index * chunk, last)
    start_B = jnp.full_like(state.length_B, start)
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
  engine: Engine,
  weights: Weights,
  state: DecodeState,
  max_steps: Array,
  least_rows: Array,
) -> DecodeState:
  """Steps `max_steps` times, or until rows have ended.

  Args:
    engine: static.
    weights: of target and drafter.
    state: after prefill.
    max_steps: how many blocks at most.
    least_rows: go on while at least so many rows are running: 1 for all to
      end, or all that are running for one to end.
  """

  def running(carry):
    state, steps = carry
    return (state.active_B.sum() >= least_rows) & (steps < max_steps)

  def advance(carry):
    state, steps = carry
    return step(engine, weights, state), steps + 1

  return lax.while_loop(running, advance, (state, jnp.int32(0)))[0]


def step(engine: Engine, weights: Weights, state: DecodeState) -> DecodeState:
  """One block of every row: draft, verify, accept, commit."""
  drafter = engine.drafter
  proposal, draft = propose(engine, weights, state)
  logits_BTV, tapped_BTF, cache = verify(engine, weights, state, proposal)
  judged = judge(engine, state, proposal, logits_BTV)
  after = _commit(engine, state, weights, judged)
  after = dataclasses.replace(after, target=cache, draft=draft)
  if not drafter.taps:
    return after
  # The target has seen everything up to, and without, the new newest token.
  seen = Features(
    tapped_BTF, state.length_B - 1, after.length_B - state.length_B
  )
  draft = drafter.observe(weights.draft, draft, _look(engine, after), seen)
  return dataclasses.replace(after, draft=draft)


class Judged(NamedTuple):
  """A proposal and what became of it.

  Attributes:
    proposal: the drafts, of which those count that could be judged.
    verdict: of the rule.
    logits_BTV: the target's; 0 where they are not finite.
    law_BTV: what the rule has seen of them.
    finite_BT: where the target's logits are finite.
  """

  proposal: Proposal
  verdict: Verdict
  logits_BTV: Array
  law_BTV: Array
  finite_BT: Array


def propose(
  engine: Engine, weights: Weights, state: DecodeState
) -> tuple[Proposal, PyTree]:
  """Draft: the drafts of every row, and the drafter's new state."""
  proposal, draft = engine.drafter.propose(
    weights.draft, state.draft, _look(engine, state)
  )
  return _clip(proposal, state), draft


def verify(
  engine: Engine, weights: Weights, state: DecodeState, proposal: Proposal
) -> tuple[Array, Array, PyTree]:
  """Verify: the newest token and its drafts through the target, in one pass.

  Returns:
    logits_BTV: after each prefix of the drafts, T = K + 1.
    tapped_BTF: the features there.
    cache: the target's.
  """
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


def judge(
  engine: Engine, state: DecodeState, proposal: Proposal, logits_BTV: Array
) -> Judged:
  """Accept: how many drafts stay, and which token follows them."""
  finite_BT = jnp.isfinite(logits_BTV).all(axis=-1)
  logits_BTV = jnp.where(finite_BT[..., None], logits_BTV, 0)
  proposal = _judgeable(proposal, finite_BT)
  noise = _noise(engine, state)
  position_BT = noise.positions(logits_BTV.shape[1])
  law_BTV = _law(engine, state, logits_BTV, position_BT, proposal.tokens_BK)
  verdict = engine.rule(law_BTV, proposal, noise)
  return Judged(proposal, verdict, logits_BTV, law_BTV, finite_BT)


def _noise(engine: Engine, state: DecodeState) -> Noise:
  return Noise(state.seed_B, state.length_B, engine.rule.coupled)


def _law(
  engine: Engine,
  state: DecodeState,
  logits_BTV: Array,
  position_BT: Array,
  draft_BK: Array,
) -> Array:
  """The law of the tokens at these positions; logits where they suffice.

  Args:
    engine: static.
    state: the rows, up to their newest token.
    logits_BTV: a model's, target's or draft's, for these positions.
    position_BT: places after the text.
    draft_BK: the tokens that stand between the text and those places.
  """
  controls, history = state.law.controls, state.history
  if controls is not None and history is not None:
    written_BTV = history.along(draft_BK, position_BT - state.length_B[:, None])
    logits_BTV = controls.adjust(
      logits_BTV, position_BT, history.prompt_BV, written_BTV, state.eos_BE
    )
  if not engine.rule.needs_law:
    return logits_BTV
  return sampling.log_probs(logits_BTV, state.law)


def _look(engine: Engine, state: DecodeState) -> View:
  """What a drafter may see of the state."""
  noise = _noise(engine, state)

  def draw(
    logits_BTV: Array, position_BT: Array, draft_BK: Array
  ) -> tuple[Array, Array | None]:
    law_BTV = _law(engine, state, logits_BTV, position_BT, draft_BK)
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


def _judgeable(proposal: Proposal, finite_BT: Array) -> Proposal:
  """Cuts the drafts that would be judged by logits which are not finite.

  Whether a position is cut depends on the drafts before it, not on its own:
  the law of what is kept stays the target's.
  """
  sound_B = jnp.cumprod(finite_BT[:, :-1].astype(jnp.int32), axis=1).sum(axis=1)
  return proposal._replace(length_B=jnp.minimum(proposal.length_B, sound_B))


def _commit(
  engine: Engine,
  state: DecodeState,
  weights: Weights,
  judged: Judged,
) -> DecodeState:
  """Appends the kept drafts and the token after them; ends rows."""
  proposal, verdict, logits_BTV, law_BTV, finite_BT = judged
  kept_B = verdict.kept_B
  # The token after the kept drafts comes from their last row of logits.
  sound_B = jnp.take_along_axis(finite_BT, kept_B[:, None], axis=1)[:, 0]
  token_BT = jnp.pad(proposal.tokens_BK, ((0, 0), (0, 1)))
  token_BT = put(token_BT, kept_B, verdict.next_B[:, None])
  new_B = jnp.where(state.active_B, kept_B + sound_B, 0)
  early_B: Array | int = 0
  if state.law.controls is not None:
    early_B = state.law.controls.least_B - state.length_B - 1
  end = stopping.find_end(
    token_BT, new_B, state.eos_BE, state.stop_B, weights.stops, early_B
  )
  length_B = state.length_B + end.count_B

  finish_B = jnp.select(
    [
      ~state.active_B,
      end.eos_B,
      end.stop_B,
      ~sound_B,
      length_B >= state.limit_B,
    ],
    [
      state.finish_B,
      Finish.EOS,
      Finish.STOP,
      Finish.NONFINITE,
      Finish.LENGTH,
    ],
    Finish.RUNNING,
  ).astype(jnp.int32)

  kept_B = jnp.minimum(kept_B, end.count_B)
  # Drafts behind the row's end do not count.
  drafts_B = jnp.where(
    end.eos_B | end.stop_B,
    jnp.minimum(end.count_B, proposal.length_B),
    proposal.length_B,
  )
  by_draft_BT = jnp.arange(token_BT.shape[1])[None] < kept_B[:, None]
  log_probs_BS = state.log_probs_BS
  if log_probs_BS is not None:
    log_p_BTV = jax.nn.log_softmax(logits_BTV, axis=-1)
    log_p_BT = jnp.take_along_axis(log_p_BTV, token_BT[..., None], axis=-1)
    log_probs_BS = put(log_probs_BS, state.length_B, log_p_BT[..., 0])
  trace = state.trace
  if trace is not None:
    log_p_BTV = law_BTV
    if not engine.rule.needs_law:
      log_p_BTV = jax.nn.log_softmax(law_BTV, axis=-1)
    trace = trace.note(
      state.length_B,
      proposal,
      log_p_BTV,
      verdict.next_B,
      (drafts_B, kept_B, end.count_B),
    )
  history = state.history
  if history is not None:
    history = history.add(token_BT, end.count_B)
  return dataclasses.replace(
    state,
    tokens_BS=put(state.tokens_BS, state.length_B, token_BT),
    length_B=length_B,
    finish_B=finish_B,
    history=history,
    stop_B=end.state_B,
    drafted_BS=put(state.drafted_BS, state.length_B, by_draft_BT),
    log_probs_BS=log_probs_BS,
    trace=trace,
    counts=state.counts.add(state.active_B, end.count_B, drafts_B, kept_B),
  )
