"""Plain decoding: the loop with K = 0."""

import dataclasses

import jax.numpy as jnp

from specdec_jax.models.language_model import LanguageModel
from specdec_jax.types import Features, Proposal, PyTree, View


@dataclasses.dataclass(frozen=True)
class NoDraft:
  """Proposes nothing: the target decodes one token a pass, the baseline."""

  num_draft_tokens = 0
  taps = ()
  max_length = None

  def check(self, target: LanguageModel) -> None:
    del target  # any will do

  def split(self) -> tuple["NoDraft", PyTree]:
    return self, ()

  def init(self, batch: int, slots: int) -> PyTree:
    del batch, slots
    return ()

  def observe(
    self, params: PyTree, draft: PyTree, view: View, features: Features
  ) -> PyTree:
    del params, view, features
    return draft

  def propose(
    self, params: PyTree, draft: PyTree, view: View
  ) -> tuple[Proposal, PyTree]:
    del params
    empty_BK = jnp.zeros((view.length_B.shape[0], 0), jnp.int32)
    return Proposal(empty_BK, jnp.zeros_like(view.length_B), None), draft
