"""Rules that change the target's distribution. Opt-in, and named so."""

import dataclasses

import jax.numpy as jnp

from specdec_jax.acceptance import rejection
from specdec_jax.arrays import pick
from specdec_jax.types import Array, Proposal


@dataclasses.dataclass(frozen=True)
class ThresholdRule(rejection.RejectionRule):
  """Keeps each draft x while p(x) >= q(x), as popular accounts tell it.

  Lossy: a draft that is less probable under the target is always rejected,
  not only as often as its excess demands, so such tokens come out too rarely.
  With p = (1/3, 2/3) and q = (2/3, 1/3) one step emits (2/9, 7/9), a total
  variation of 1/9; `docs/rules.md` works it out. The token after the kept
  drafts follows p.
  """

  def acceptance(self, log_p_BTV: Array, proposal: Proposal) -> Array:
    ratio_BK = rejection.log_ratio(log_p_BTV, proposal)
    return (ratio_BK >= 0).astype(jnp.float32)

  def kept(self, passed_BK: Array) -> Array:
    return rejection.prefix(passed_BK)

  def residual(
    self, log_p_BTV: Array, proposal: Proposal, kept_B: Array
  ) -> Array:
    del proposal
    return jnp.exp(pick(log_p_BTV, kept_B))
