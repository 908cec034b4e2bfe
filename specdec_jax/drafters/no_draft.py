"""Plain decoding: the loop with K = 0."""

import dataclasses

import jax.numpy as jnp

from specdec_jax.drafters.modelless import Modelless
from specdec_jax.types import Proposal, PyTree, View


@dataclasses.dataclass(frozen=True)
class NoDraft(Modelless):
  """Proposes nothing: the target decodes one token a pass, the baseline."""

  num_draft_tokens = 0

  def propose(
    self, params: PyTree, draft: PyTree, view: View
  ) -> tuple[Proposal, PyTree]:
    del params
    empty_BK = jnp.zeros((view.length_B.shape[0], 0), jnp.int32)
    return Proposal(empty_BK, jnp.zeros_like(view.length_B), None), draft
