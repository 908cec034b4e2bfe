"""Rules that change the target's distribution. Opt-in, and named so.

They keep drafts until one fails, as token verification does, but by a test
that is not its own. `docs/rules.md` states the bias of each. Rows of
temperature 0 are plain greedy decoding under all of them: a draft is then
kept if and only if it is the target's most probable token.
"""

import dataclasses

import jax.numpy as jnp

from specdec_jax.acceptance import rejection
from specdec_jax.acceptance.token import TokenRule
from specdec_jax.arrays import pick
from specdec_jax.noise import Noise
from specdec_jax.types import Array, Proposal


class _Filter(TokenRule):
  """Base of rules that know no correction: after kept drafts follows p."""

  def residual(
    self, log_p_BTV: Array, proposal: Proposal, kept_B: Array
  ) -> Array:
    del proposal
    return jnp.exp(pick(log_p_BTV, kept_B))


@dataclasses.dataclass(frozen=True)
class Threshold(_Filter):
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


@dataclasses.dataclass(frozen=True)
class Lenient(TokenRule):
  """Token verification that takes drafts for less probable than they were.

  Leviathan et al., arXiv 2211.17192, appendix A.5: with lenience l, a draft x
  is kept with probability min(1, p(x) / (l q(x))), and the token after a
  rejection follows (p - l q)+, renormalised; after a full block it follows p.
  Lossy below 1, where more drafts stay: no token becomes more probable than
  p / l. With 1 it is the token rule.

  Attributes:
    lenience: l, in [1e-6, 1].

  Raises:
    ValueError: the lenience lies outside its range.
  """

  lenience: float = 0.9

  def __post_init__(self) -> None:
    if not 1e-6 <= self.lenience <= 1:
      raise ValueError(
        "lenience: expected a number in [1e-6, 1] (1 is the lossless token "
        f"rule), got {self.lenience}"
      )

  def acceptance(self, log_p_BTV: Array, proposal: Proposal) -> Array:
    ratio_BK = rejection.log_ratio(log_p_BTV, proposal)
    return jnp.exp(jnp.minimum(ratio_BK - jnp.log(self.lenience), 0))

  def residual(
    self, log_p_BTV: Array, proposal: Proposal, kept_B: Array
  ) -> Array:
    # (p - l q)+ up to a factor, which a draw does not see.
    scale = 1 / self.lenience
    return rejection.correction(log_p_BTV, proposal, kept_B, scale)


@dataclasses.dataclass(frozen=True)
class Typical(_Filter):
  """Keeps each draft while the target finds it typical, whatever q was.

  Medusa's typical acceptance (Cai et al., arXiv 2401.10774): a draft x is kept
  while p(x) > min(epsilon, delta exp(-H)), where H is the entropy of p at its
  position, in nats. Lossy: what passes comes out as often as it was drafted.
  The token after the kept drafts follows p. No law q is asked for, which saves
  [B, K, V] numbers.

  Attributes:
    epsilon: the probability that is always enough; in (0, 1).
    delta: what is enough where the target itself is unsure, as a share of
      exp(-H); positive.

  Raises:
    ValueError: a value lies outside its range.
  """

  epsilon: float = 0.09
  delta: float = 0.3

  def __post_init__(self) -> None:
    if not 0 < self.epsilon < 1:
      raise ValueError(
        f"epsilon: expected a number in (0, 1), got {self.epsilon}"
      )
    if not self.delta > 0:
      raise ValueError(f"delta: expected a positive number, got {self.delta}")

  def draw(
    self, log_q_BTV: Array, position_BT: Array, noise: Noise
  ) -> tuple[Array, None]:
    return super().draw(log_q_BTV, position_BT, noise)[0], None

  def acceptance(self, log_p_BTV: Array, proposal: Proposal) -> Array:
    # A point mass has log q = 0, which leaves p(x).
    picked = proposal._replace(log_q_BKV=None)
    p_BK = jnp.exp(rejection.log_ratio(log_p_BTV, picked))
    log_p_BKV = log_p_BTV[:, :-1]
    entropy_BK = -(jnp.exp(log_p_BKV) * log_p_BKV).sum(axis=-1)
    enough_BK = jnp.minimum(self.epsilon, self.delta * jnp.exp(-entropy_BK))
    return (p_BK > enough_BK).astype(jnp.float32)
