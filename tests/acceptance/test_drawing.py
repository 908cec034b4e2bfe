"""The thin part of the rules, which meets random numbers."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax.acceptance import (
  BlockRule,
  GreedyRule,
  GumbelRule,
  Lenient,
  Threshold,
  TokenRule,
  Typical,
  named_rule,
)
from specdec_jax.noise import Noise, Purpose
from specdec_jax.sampling import LOG_ZERO
from specdec_jax.testing import goodness_of_fit
from specdec_jax.types import Array, Proposal

RULES = (
  TokenRule(),
  BlockRule(),
  Threshold(),
  Typical(),
  Lenient(),
  GumbelRule(),
  GreedyRule(),
)
REJECTION = RULES[:5]
SIZE, WIDTH, ROWS = 5, 4, 200
LARGEST = float(np.nextafter(np.float32(1), np.float32(0)))  # below 1


class SameNoise(NamedTuple):
  """The same number for every purpose and position."""

  length_B: Array
  value: float

  def positions(self, count):
    return self.length_B[:, None] + jnp.arange(count)[None]

  def uniform(self, purpose, position_BT):
    return jnp.full((*position_BT.shape, 2), self.value)


class ListedNoise(NamedTuple):
  """Numbers from a list, by row, position and purpose: quick to compile."""

  length_B: Array
  numbers_BTPV: Array

  positions = SameNoise.positions

  def uniform(self, purpose, position_BT):
    row_B1 = jnp.arange(len(position_BT))[:, None]
    return self.numbers_BTPV[row_B1, position_BT, purpose, :2]

  def gumbel(self, position_BT, size):
    row_B1 = jnp.arange(len(position_BT))[:, None]
    uniform_BTV = self.numbers_BTPV[row_B1, position_BT, Purpose.RACE, :size]
    return -jnp.log(-jnp.log(uniform_BTV))


def _log(p):
  with np.errstate(divide="ignore"):
    return jnp.asarray(np.maximum(np.log(p), LOG_ZERO), jnp.float32)


def _random_case(seed: int, rows: int = ROWS):
  """Laws with zeros in half of the entries, and drafts drawn from q."""
  rng = np.random.default_rng(seed)

  def laws(*shape):
    weight = rng.exponential(size=(*shape, SIZE))
    weight *= rng.random(weight.shape) < 0.5
    weight[..., rng.integers(SIZE)] += 1e-3
    return weight / weight.sum(axis=-1, keepdims=True)

  p_BTV, q_BKV = laws(rows, WIDTH + 1), laws(rows, WIDTH)
  uniform_BK1 = rng.random((rows, WIDTH, 1))
  tokens_BK = (q_BKV.cumsum(axis=-1) < uniform_BK1 * 0.999999).sum(axis=-1)
  tokens_BK = jnp.asarray(tokens_BK, jnp.int32)
  length_B = jnp.asarray(rng.integers(0, WIDTH + 1, rows), jnp.int32)
  return p_BTV, Proposal(tokens_BK, length_B, _log(q_BKV))


@pytest.mark.parametrize("value", [0.0, 0.5, LARGEST])
@pytest.mark.parametrize("picked", [False, True])
@pytest.mark.parametrize("rule", REJECTION, ids=str)
def test_no_number_lets_an_impossible_token_out(rule, picked, value):
  p_BTV, proposal = _random_case(0)
  if picked:
    proposal = proposal._replace(log_q_BKV=None)
  noise = SameNoise(jnp.full(ROWS, 7), value)
  verdict = jax.jit(rule)(_log(p_BTV), proposal, noise)
  kept_B, next_B = np.asarray(verdict.kept_B), np.asarray(verdict.next_B)
  assert (kept_B <= np.asarray(proposal.length_B)).all()
  for row, kept in enumerate(kept_B):
    drafts = np.asarray(proposal.tokens_BK[row, :kept])
    assert (p_BTV[row, np.arange(kept), drafts] > 0).all()
    assert p_BTV[row, kept, next_B[row]] > 0
  # The case is worth something: impossible drafts were there to be kept.
  first = np.asarray(proposal.tokens_BK[:, 0])
  assert (p_BTV[np.arange(ROWS), 0, first] == 0).sum() > 10


def test_loose_comparison_lets_an_impossible_token_out():
  """`u <= p/q`, which the test above must be able to see."""

  @dataclasses.dataclass(frozen=True)
  class Loose(TokenRule):
    def acceptance(self, log_p_BTV, proposal):
      smallest = float(np.finfo(np.float32).tiny)
      return jnp.maximum(super().acceptance(log_p_BTV, proposal), smallest)

  with pytest.raises(AssertionError):
    test_no_number_lets_an_impossible_token_out(Loose(), False, 0.0)


@pytest.mark.parametrize(
  "rule, picked",
  [(rule, rule.coupled) for rule in RULES] + [(BlockRule(), True)],
  ids=str,
)
def test_rows_that_drafted_less_are_judged_as_if_cut(rule, picked):
  p_BTV, proposal = _random_case(1)
  if picked:
    proposal = proposal._replace(log_q_BKV=None)

  length_B = np.arange(ROWS) % 3
  numbers = np.random.default_rng(2).random((ROWS, 8, len(Purpose), SIZE))
  noise = ListedNoise(jnp.asarray(length_B), jnp.asarray(numbers, jnp.float32))
  judge = jax.jit(rule)
  together = judge(_log(p_BTV), proposal, noise)
  for count in (0, 1, 3):
    rows = np.flatnonzero(np.asarray(proposal.length_B) <= count)
    assert len(rows) > 10
    log_q_BKV = proposal.log_q_BKV
    cut = Proposal(
      proposal.tokens_BK[:, :count],
      jnp.minimum(proposal.length_B, count),
      None if log_q_BKV is None else log_q_BKV[:, :count],
    )
    alone = judge(_log(p_BTV[:, : count + 1]), cut, noise)
    np.testing.assert_array_equal(together.kept_B[rows], alone.kept_B[rows])
    np.testing.assert_array_equal(together.next_B[rows], alone.next_B[rows])


@pytest.mark.parametrize(
  "rule", [TokenRule(), BlockRule(), GumbelRule()], ids=str
)
def test_real_noise_gives_the_target_law_and_the_published_acceptance(rule):
  """False alarms: 1e-6 for the law, 6e-5 (4 sigma) for the rate.

  The vocabulary is of two blocks of `sampling.draw`, which then needs both of
  its numbers: a rule that used one of them again would be seen.
  """
  rows, size = 20_000, 600
  p_V, q_V = np.zeros((2, size))
  some = [0, 1, 2, 598, 599]
  p_V[some] = 0.4, 0.1, 0.0, 0.3, 0.2
  q_V[some] = 0.1, 0.25, 0.2, 0.2, 0.25

  @jax.jit
  def emit(log_p_V, log_q_V):
    seed_B, start_B = jnp.arange(rows, dtype=jnp.uint32), jnp.zeros(rows, int)
    noise = Noise(seed_B, start_B, rule.coupled)
    log_q_B1V = jnp.broadcast_to(log_q_V, (rows, 1, size))
    log_p_B2V = jnp.broadcast_to(log_p_V, (rows, 2, size))
    draft_B1, law = rule.draw(log_q_B1V, noise.positions(1), noise)
    proposal = Proposal(draft_B1, jnp.ones(rows, int), law)
    verdict = rule(log_p_B2V, proposal, noise)
    first_B = jnp.where(verdict.kept_B > 0, draft_B1[:, 0], verdict.next_B)
    return first_B, verdict

  first_B, verdict = emit(_log(p_V), _log(q_V))
  law = {(x,): share for x, share in enumerate(p_V)}
  assert goodness_of_fit(np.asarray(first_B)[:, None].tolist(), law) > 1e-6
  # The token after a kept draft follows p as well, whatever the draft was.
  kept_B = np.asarray(verdict.kept_B) > 0
  bonus = np.asarray(verdict.next_B)[kept_B, None]
  assert goodness_of_fit(bonus.tolist(), law) > 1e-6
  distance = np.abs(p_V - q_V).sum() / 2
  rate = 1 - distance
  if rule == GumbelRule():
    # Daliri et al.: sum_i 1 / sum_j max(p_j / p_i, q_j / q_i).
    rate = sum(
      1 / np.maximum(p_V / p, q_V / q).sum()
      for p, q in zip(p_V, q_V, strict=True)
      if p > 0 and q > 0
    )
    assert (1 - distance) / (1 + distance) <= rate <= 1 - distance
  sigma = np.sqrt(rate * (1 - rate) / rows)
  assert kept_B.mean() == pytest.approx(rate, abs=4 * sigma)


def test_rules_by_name():
  assert named_rule("token") == TokenRule()
  assert named_rule("block") == BlockRule()
  assert named_rule("gumbel") == GumbelRule()
  assert named_rule("threshold") == Threshold()
  assert named_rule("typical") == Typical()
  assert named_rule("lenient") == Lenient()
  own = TokenRule()
  assert named_rule(own) is own
  with pytest.raises(ValueError, match=r"expected one of token, .* got 'tree'"):
    named_rule("tree")
