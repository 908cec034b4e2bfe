"""Block verification: judges the drafts of a block together.

Sun et al., "Block Verification Accelerates Speculative Decoding", arXiv
2403.10444, Algorithm 2. Lossless; in expectation it keeps at least as many
drafts as token verification, and the same number where q is a point mass.
"""

import dataclasses

import jax.numpy as jnp
from jax import lax

from specdec_jax.acceptance import rejection
from specdec_jax.arrays import pick
from specdec_jax.types import Array, Proposal


@dataclasses.dataclass(frozen=True)
class BlockRule(rejection.RejectionRule):
  """Keeps the longest prefix whose test passes, failures before it or not.

  With P_0 = 1 and P_i = min(P_{i-1} p(x_i) / q(x_i), 1), the test of a prefix
  of i < k drafts passes with probability

    h_i = S_i / (S_i + 1 - P_i),   S_i = sum_x (P_i p(x|x_1..x_i) - q(x|..))+

  and that of all k drafts with h_k = P_k. The token after i < k kept drafts
  follows (P_i p - q)+, renormalised; after a full block it follows p.

  The tests look at the noise of all positions, so that noise must be fresh in
  every block: a rejected position meets other numbers when its turn comes
  again.
  """

  def acceptance(self, log_p_BTV: Array, proposal: Proposal) -> Array:
    joint_BT = _joint_ratio(log_p_BTV, proposal)
    joint_BK = joint_BT[:, 1:]
    width = joint_BK.shape[1]
    if width == 0:
      return joint_BK
    # Row i of p and of q is the law of the draft that follows i drafts; S_i is
    # wanted for 0 < i < K, the last column is never used.
    q_BKV = rejection.draft_probs(proposal, log_p_BTV.shape[-1])
    next_q_BKV = jnp.roll(q_BKV, -1, axis=1)
    rest_BKV = joint_BK[..., None] * jnp.exp(log_p_BTV[:, 1:]) - next_q_BKV
    mass_BK = jnp.maximum(rest_BKV, 0).sum(axis=-1)
    total_BK = mass_BK + 1 - joint_BK
    h_BK = jnp.where(
      total_BK > 0, mass_BK / jnp.where(total_BK > 0, total_BK, 1), 1
    )
    number_1K = jnp.arange(1, width + 1)[None]
    last_BK = number_1K == proposal.length_B[:, None]
    h_BK = jnp.where(last_BK, joint_BK, h_BK)
    return jnp.where(rejection.drafted(proposal), h_BK, 0)

  def kept(self, passed_BK: Array) -> Array:
    number_1K = jnp.arange(1, passed_BK.shape[1] + 1)[None]
    return jnp.max(jnp.where(passed_BK, number_1K, 0), axis=1, initial=0)

  def residual(
    self, log_p_BTV: Array, proposal: Proposal, kept_B: Array
  ) -> Array:
    scale_B = pick(_joint_ratio(log_p_BTV, proposal), kept_B)
    return rejection.correction(log_p_BTV, proposal, kept_B, scale_B)


def _joint_ratio(log_p_BTV: Array, proposal: Proposal) -> Array:
  """P_0 .. P_K, `[B, K + 1]`.

  The recursion P_i = min(P_{i-1} r_i, 1) is a random walk held below zero in
  logarithms, and so log P_i = C_i - max(0, C_1, .., C_i) with C the walk set
  free: a cumulative sum and a cumulative maximum, no scan.
  """
  walk_BK = jnp.cumsum(rejection.log_ratio(log_p_BTV, proposal), axis=1)
  highest_BK = jnp.maximum(lax.cummax(walk_BK, axis=1), 0)
  joint_BK = jnp.exp(walk_BK - highest_BK)
  return jnp.pad(joint_BK, ((0, 0), (1, 0)), constant_values=1)
