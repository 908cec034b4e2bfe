"""Rules that are wrong in ways that have shipped: the oracle sees each."""

import dataclasses

import jax.numpy as jnp
import pytest

from specdec_jax.acceptance import BlockRule, TokenRule, rejection
from specdec_jax.acceptance.block import _joint_ratio
from specdec_jax.acceptance.rejection import RejectionRule
from specdec_jax.arrays import pick
from specdec_jax.testing import speculative_law, target_law, total_variation
from tests.acceptance import laws


@dataclasses.dataclass(frozen=True)
class ResidualIsTarget(TokenRule):
  """Draws the correction from p instead of (p - q)+."""

  def residual(self, log_p_BTV, proposal, kept_B):
    return jnp.exp(pick(log_p_BTV, kept_B))


@dataclasses.dataclass(frozen=True)
class ResidualEvenAfterAll(TokenRule):
  """Takes a residual after a full block, where no draft was rejected."""

  def residual(self, log_p_BTV, proposal, kept_B):
    beyond = proposal._replace(length_B=proposal.length_B + 1)
    return rejection.correction(log_p_BTV, beyond, kept_B, scale_B=1.0)


@dataclasses.dataclass(frozen=True)
class ExactMatch(TokenRule):
  """Keeps a draft with probability p, as if it were picked, not drawn."""

  def acceptance(self, log_p_BTV, proposal):
    picked = proposal._replace(log_q_BKV=None)
    return super().acceptance(log_p_BTV, picked)


@dataclasses.dataclass(frozen=True)
class NotAPrefix(TokenRule):
  """Keeps up to the last test that passed, as only block may."""

  def kept(self, passed_BK):
    return BlockRule().kept(passed_BK)


@dataclasses.dataclass(frozen=True)
class BlockWithJointTests(BlockRule):
  """Tests prefixes with P_i instead of h_i."""

  def acceptance(self, log_p_BTV, proposal):
    joint_BK = _joint_ratio(log_p_BTV, proposal)[:, 1:]
    return jnp.where(rejection.drafted(proposal), joint_BK, 0)


@dataclasses.dataclass(frozen=True)
class BlockWithTokenResidual(BlockRule):
  """Forgets to scale p in the residual."""

  def residual(self, log_p_BTV, proposal, kept_B):
    return rejection.correction(log_p_BTV, proposal, kept_B, scale_B=1.0)


@dataclasses.dataclass(frozen=True)
class BlockThatStops(BlockRule):
  """Stops at the first test that fails, as only token may."""

  def kept(self, passed_BK):
    return TokenRule().kept(passed_BK)


def _bias(rule: RejectionRule, p, q, **options) -> float:
  law = speculative_law(rule, p, q, 3, 4, **options)
  return total_variation(law, target_law(p, 4))


@pytest.mark.parametrize(
  "rule",
  [
    ResidualIsTarget(),
    ResidualEvenAfterAll(),
    ExactMatch(),
    NotAPrefix(),
    BlockWithJointTests(),
    BlockWithTokenResidual(),
    BlockThatStops(),
  ],
  ids=str,
)
def test_oracle_sees_a_wrong_rule(rule):
  # A thousand times what the right rules may be off by.
  assert _bias(rule, *laws.PAIRS["random"]) > 1e-3


@pytest.mark.parametrize("rule", [TokenRule(), BlockRule()], ids=str)
class TestDishonestDraft:
  """A right rule cannot save a drafter that reports another q than its own."""

  def test_softmax_reported_for_picked_tokens(self, rule):
    p, q = laws.PAIRS["random"]
    assert _bias(rule, p, laws.one_hot(q), reported=q) > 1e-2

  def test_law_before_the_temperature_reported(self, rule):
    def sharpened(text):
      return q(text) ** 2 / (q(text) ** 2).sum()

    p, q = laws.PAIRS["random"]
    assert _bias(rule, p, sharpened, reported=q) > 1e-2
    assert _bias(rule, p, sharpened) < 1e-6
