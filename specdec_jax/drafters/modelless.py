"""What drafters share that have no model: no weights, nothing to keep."""

from typing import Self

from specdec_jax.models.language_model import LanguageModel
from specdec_jax.types import Features, PyTree, View


class Modelless:
  """Base of drafters that look at the text alone. They fit any target."""

  taps = ()
  max_length = None
  cache_axes = ()

  def bind(self, target: LanguageModel) -> Self:
    del target
    return self

  def split(self) -> tuple[Self, PyTree]:
    return self, ()

  def init(self, batch: int, slots: int) -> PyTree:
    del batch, slots
    return ()

  def observe(
    self, params: PyTree, draft: PyTree, view: View, features: Features
  ) -> PyTree:
    del params, view, features
    return draft
