"""Token verification: speculative sampling as it was first published.

Leviathan et al., arXiv 2211.17192, Algorithm 1; Chen et al., arXiv
2302.01318, Algorithm 2. Lossless.
"""

import dataclasses

import jax.numpy as jnp

from specdec_jax.acceptance import rejection
from specdec_jax.types import Array, Proposal


@dataclasses.dataclass(frozen=True)
class TokenRule(rejection.RejectionRule):
  """Keeps each draft x with probability min(1, p(x)/q(x)), until one fails.

  The token after the kept drafts follows (p - q)+, renormalised; after a full
  block it follows p.
  """

  def acceptance(self, log_p_BTV: Array, proposal: Proposal) -> Array:
    return jnp.exp(jnp.minimum(rejection.log_ratio(log_p_BTV, proposal), 0))

  def kept(self, passed_BK: Array) -> Array:
    return rejection.prefix(passed_BK)

  def residual(
    self, log_p_BTV: Array, proposal: Proposal, kept_B: Array
  ) -> Array:
    return rejection.correction(log_p_BTV, proposal, kept_B, scale_B=1.0)
