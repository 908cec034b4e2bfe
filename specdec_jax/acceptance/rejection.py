"""What every rule of the form "keep with a probability, else correct" shares.

A rule has a deterministic part, which `specdec_jax.testing` enumerates to
prove its law, and a thin part that compares it with random numbers:

  acceptance  how probable it is that the rule's test of each draft passes
  kept        how many drafts stay, given which tests passed
  residual    the law of the token that follows them
"""

import abc

import jax
import jax.numpy as jnp

from specdec_jax import sampling
from specdec_jax.arrays import pick
from specdec_jax.noise import Noise, Purpose
from specdec_jax.types import Array, Proposal, Verdict


class RejectionRule(abc.ABC):
  """Base of the rules that test each draft against a probability."""

  coupled = False
  needs_law = True

  @abc.abstractmethod
  def acceptance(self, log_p_BTV: Array, proposal: Proposal) -> Array:
    """The probability that each draft's test passes, `[B, K]`; 0 at filler."""

  @abc.abstractmethod
  def kept(self, passed_BK: Array) -> Array:
    """How many drafts stay, `[B]`."""

  @abc.abstractmethod
  def residual(
    self, log_p_BTV: Array, proposal: Proposal, kept_B: Array
  ) -> Array:
    """Weights of the token that follows the kept drafts, `[B, V]`."""

  def draw(
    self, log_q_BTV: Array, position_BT: Array, noise: Noise
  ) -> tuple[Array, Array | None]:
    uniform_BT2 = noise.uniform(Purpose.DRAFT, position_BT)
    return sampling.draw(jnp.exp(log_q_BTV), uniform_BT2), log_q_BTV

  def __call__(
    self, log_p_BTV: Array, proposal: Proposal, noise: Noise
  ) -> Verdict:
    acceptance_BK = self.acceptance(log_p_BTV, proposal)
    position_BK = noise.positions(acceptance_BK.shape[1])
    uniform_BK = noise.uniform(Purpose.ACCEPT, position_BK)[..., 0]
    # Strictly less: uniforms reach 0, and a draft of target probability 0 must
    # not pass even then.
    kept_B = self.kept(uniform_BK < acceptance_BK)
    weight_B1V = self.residual(log_p_BTV, proposal, kept_B)[:, None]
    position_B1 = (noise.length_B + kept_B)[:, None]
    uniform_B12 = noise.uniform(Purpose.NEXT, position_B1)
    return Verdict(kept_B, sampling.draw(weight_B1V, uniform_B12)[:, 0])


def drafted(proposal: Proposal) -> Array:
  """Which entries of the proposal are drafts and not filler, `[B, K]`."""
  index_1K = jnp.arange(proposal.tokens_BK.shape[1])[None]
  return index_1K < proposal.length_B[:, None]


def draft_probs(proposal: Proposal, vocab_size: int) -> Array:
  """q, `[B, K, V]`: the law each draft was drawn from, or its point mass."""
  if proposal.log_q_BKV is None:
    return jax.nn.one_hot(proposal.tokens_BK, vocab_size, dtype=jnp.float32)
  return jnp.exp(proposal.log_q_BKV)


def log_ratio(log_p_BTV: Array, proposal: Proposal) -> Array:
  """log p(x) - log q(x) of each draft x, `[B, K]`; LOG_ZERO at filler."""

  def of_draft(log_law_BKV):
    index_BK1 = proposal.tokens_BK[..., None]
    return jnp.take_along_axis(log_law_BKV, index_BK1, axis=-1)[..., 0]

  log_p_BK = of_draft(log_p_BTV[:, :-1])
  log_q_BKV = proposal.log_q_BKV
  log_q_BK = 0.0 if log_q_BKV is None else of_draft(log_q_BKV)
  return jnp.where(drafted(proposal), log_p_BK - log_q_BK, sampling.LOG_ZERO)


def prefix(passed_BK: Array) -> Array:
  """The number of drafts before the first that failed, `[B]`."""
  return jnp.cumprod(passed_BK.astype(jnp.int32), axis=1).sum(axis=1)


def correction(
  log_p_BTV: Array, proposal: Proposal, kept_B: Array, scale_B: Array | float
) -> Array:
  """(scale * p - q)+ after the kept drafts, `[B, V]`.

  It is p itself where every draft was kept, since no q then competes with it,
  and where nothing is left of the difference, which only rounding can cause.
  """
  p_BV = jnp.exp(pick(log_p_BTV, kept_B))
  width = proposal.tokens_BK.shape[1]
  if width == 0:
    return p_BV
  q_BKV = draft_probs(proposal, p_BV.shape[-1])
  q_BV = pick(q_BKV, jnp.minimum(kept_B, width - 1))
  scale_B1 = jnp.broadcast_to(scale_B, kept_B.shape)[:, None]
  rest_BV = jnp.maximum(scale_B1 * p_BV - q_BV, 0)
  done_B = (kept_B == proposal.length_B) | ~(rest_BV > 0).any(axis=-1)
  return jnp.where(done_B[:, None], p_BV, rest_BV)
