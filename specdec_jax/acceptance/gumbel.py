"""Gumbel coupling: the output depends on seed and target, not on the draft.

Daliri et al., "Coupling without Communication and Drafter-Invariant
Speculative Decoding", arXiv 2408.07978. Lossless.
"""

import dataclasses

import jax.numpy as jnp

from specdec_jax.acceptance import rejection
from specdec_jax.arrays import pick
from specdec_jax.noise import Noise
from specdec_jax.types import Array, Proposal, Verdict


@dataclasses.dataclass(frozen=True)
class GumbelRule:
  """Draft and target race with the same noise; drafts stay while they agree.

  The target's token at a position is argmax(log p + G), with Gumbel noise G
  named by (seed, position). The draft guesses it with argmax(log q + G). So
  tokens equal plain sampling's with the same seed, whatever the drafter, the
  draft length and the batch; a draft agrees with probability at least
  (1 - TV) / (1 + TV).
  """

  coupled = True
  needs_law = True

  def draw(
    self, log_q_BTV: Array, position_BT: Array, noise: Noise
  ) -> tuple[Array, None]:
    return _race(log_q_BTV, position_BT, noise), None

  def __call__(
    self, log_p_BTV: Array, proposal: Proposal, noise: Noise
  ) -> Verdict:
    position_BT = noise.positions(log_p_BTV.shape[1])
    return follow(_race(log_p_BTV, position_BT, noise), proposal)


def _race(log_p_BTV: Array, position_BT: Array, noise: Noise) -> Array:
  noise_BTV = noise.gumbel(position_BT, log_p_BTV.shape[-1])
  return jnp.argmax(log_p_BTV + noise_BTV, axis=-1)


def follow(token_BT: Array, proposal: Proposal) -> Verdict:
  """Keeps the drafts that say what the target says, `token_BT`."""
  agree_BK = proposal.tokens_BK == token_BT[:, :-1]
  kept_B = rejection.prefix(agree_BK & rejection.drafted(proposal))
  return Verdict(kept_B, pick(token_BT, kept_B))
