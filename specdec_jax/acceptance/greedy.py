"""Greedy decoding: what every rule comes to when all laws are one-hot."""

import dataclasses

import jax.numpy as jnp

from specdec_jax.acceptance.gumbel import follow
from specdec_jax.noise import Noise
from specdec_jax.types import Array, Proposal, Verdict


@dataclasses.dataclass(frozen=True)
class GreedyRule:
  """Keeps drafts while they are the target's most probable tokens.

  The decoder puts it in the place of any rule when a whole batch has
  temperature 0: it reads logits as they are, draws no noise and compiles no
  sampling law.
  """

  coupled = True
  needs_law = False

  def draw(
    self, logits_BTV: Array, position_BT: Array, noise: Noise
  ) -> tuple[Array, None]:
    del position_BT, noise
    return jnp.argmax(logits_BTV, axis=-1), None

  def __call__(
    self, logits_BTV: Array, proposal: Proposal, noise: Noise
  ) -> Verdict:
    del noise
    return follow(jnp.argmax(logits_BTV, axis=-1), proposal)
