"""What a student is trained to make small, position by position.

Each distillation loss compares the student's law q with the teacher's law p,
both over the whole vocabulary: from log_p_BTV and log_q_BTV, float32, it makes
the loss of each position, `[B, T]`, in nats but for total variation, which is a
probability. They are DistillSpec's divergences (Zhou et al., arXiv 2310.08461,
table 1), and the logarithm of the acceptance rate. All are 0 where the laws are
equal, and at no other place.

A student with a limited vocabulary has probability 0 elsewhere, that is
`LOG_ZERO` as its logarithm. Where that makes a loss infinite, the teacher's law
is restricted to the student's tokens and renormalised, as EAGLE-3 does (Li et
al., arXiv 2503.01840).
"""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from specdec_jax.types import LOG_ZERO, Array

Loss = Callable[[Array, Array], Array]

# A logarithm below it is that of a token which is banned or unknown.
_BANNED = LOG_ZERO / 2
# Reverse KL is infinite where the teacher bans a token; a law of float32
# logits is hardly ever below this elsewhere.
_LEAST_LOG = -80.0


def cross_entropy(label_BT: Array, log_q_BTV: Array) -> Array:
  """-log q of the text's own next token, `[B, T]`, in nats.

  Tokens that the student does not know count 0.
  """
  log_q_BT = jnp.take_along_axis(log_q_BTV, label_BT[..., None], axis=-1)[
    ..., 0
  ]
  return jnp.where(log_q_BT > _BANNED, -log_q_BT, 0.0)


def forward_kl(log_p_BTV: Array, log_q_BTV: Array) -> Array:
  """Σ p log(p / q): Hinton et al., arXiv 1503.02531.

  The law p is restricted to the tokens that the student knows.
  """
  known_BTV = log_q_BTV > _BANNED
  # Twice, so that a teacher who bans all of them is uniform over them alone.
  log_p_BTV = jax.nn.log_softmax(
    jnp.where(known_BTV, log_p_BTV, 2 * LOG_ZERO), axis=-1
  )
  return jnp.sum(jnp.exp(log_p_BTV) * (log_p_BTV - log_q_BTV), axis=-1)


def reverse_kl(log_p_BTV: Array, log_q_BTV: Array) -> Array:
  """Σ q log(q / p): DistillSpec's RKL. log p counts as -80 at least."""
  log_p_BTV = jnp.maximum(log_p_BTV, _LEAST_LOG)
  return jnp.sum(jnp.exp(log_q_BTV) * (log_q_BTV - log_p_BTV), axis=-1)


def jensen_shannon(log_p_BTV: Array, log_q_BTV: Array) -> Array:
  """½ KL(p ‖ m) + ½ KL(q ‖ m), m = ½ (p + q): DistillSpec's JSD, β = ½."""
  log_m_BTV = jnp.logaddexp(log_p_BTV, log_q_BTV) - jnp.log(2.0)
  both_BTV = jnp.exp(log_p_BTV) * (log_p_BTV - log_m_BTV)
  both_BTV += jnp.exp(log_q_BTV) * (log_q_BTV - log_m_BTV)
  return 0.5 * jnp.sum(both_BTV, axis=-1)


def total_variation(log_p_BTV: Array, log_q_BTV: Array) -> Array:
  """½ Σ |p - q|: the probability of a rejection (DistillSpec)."""
  return 0.5 * jnp.sum(jnp.abs(jnp.exp(log_p_BTV) - jnp.exp(log_q_BTV)), -1)


def negative_log_acceptance(log_p_BTV: Array, log_q_BTV: Array) -> Array:
  """-log Σ min(p, q): the LK loss (arXiv 2602.23881).

  Its gradient is that of total variation divided by the acceptance rate: it
  does not fade where the student is far off.
  """
  return -jax.nn.logsumexp(jnp.minimum(log_p_BTV, log_q_BTV), axis=-1)


def acceptance(log_p_BTV: Array, log_q_BTV: Array) -> Array:
  """Σ min(p, q), how probable it is that a draft is kept, `[B, T]`."""
  return jnp.sum(jnp.exp(jnp.minimum(log_p_BTV, log_q_BTV)), axis=-1)


DISTILLATION: Mapping[str, Loss] = {
  "forward_kl": forward_kl,
  "reverse_kl": reverse_kl,
  "jensen_shannon": jensen_shannon,
  "total_variation": total_variation,
  "negative_log_acceptance": negative_log_acceptance,
}
CROSS_ENTROPY = "cross_entropy"
