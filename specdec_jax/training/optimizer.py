"""The optimiser: optax's, with a schedule and a mask."""

import dataclasses
from typing import Any

import jax
import optax
from optax import contrib

from specdec_jax.training import ranges
from specdec_jax.types import PyTree

OPTIMIZERS = ("adamw", "muon")


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
  """How weights follow gradients.

  Attributes:
    name: "adamw", or "muon": orthogonalised momentum for the matrices of the
      layers (Jordan, 2024; Liu et al., arXiv 2502.16982) and AdamW for the
      rest, with the same learning rate.
    learning_rate: at its highest.
    warmup_steps: it rises linearly for so many steps, and then follows a
      cosine to a tenth of its highest.
    weight_decay: of matrices, with muon those of the layers.
    clip_norm: gradients longer than this are cut to it.

  Raises:
    ValueError: a value lies outside its range.
  """

  name: str = "adamw"
  learning_rate: float = 1e-3
  warmup_steps: int = 100
  weight_decay: float = 0.1
  clip_norm: float = 1.0

  def __post_init__(self) -> None:
    if self.name not in OPTIMIZERS:
      raise ValueError(
        f"optimizer: expected one of {', '.join(OPTIMIZERS)}, got {self.name!r}"
      )
    ranges.integers(0, warmup_steps=self.warmup_steps)
    ranges.numbers(
      "a number above 0",
      lambda value: value > 0,
      learning_rate=self.learning_rate,
      clip_norm=self.clip_norm,
    )
    ranges.numbers(
      "a number of at least 0",
      lambda value: value >= 0,
      weight_decay=self.weight_decay,
    )

  def schedule(self, steps: int) -> optax.Schedule:
    """The learning rate by step, from 0.

    Raises:
      ValueError: it would only rise.
    """
    if self.warmup_steps >= steps:
      raise ValueError(
        f"warmup_steps: expected fewer than the {steps} steps of the training, "
        f"got {self.warmup_steps}"
      )
    return optax.warmup_cosine_decay_schedule(
      init_value=self.learning_rate / (self.warmup_steps + 1),
      peak_value=self.learning_rate,
      warmup_steps=self.warmup_steps,
      decay_steps=steps,
      end_value=self.learning_rate / 10,
    )

  def make(self, steps: int) -> optax.GradientTransformation:
    """The whole of it, for a training of so many steps."""
    if self.name == "muon":
      update = contrib.muon(
        self.schedule(steps),
        weight_decay=self.weight_decay,
        # A matrix of n x m moves as far as with AdamW (Liu et al.).
        consistent_rms=0.2,
        muon_weight_dimension_numbers=_layer_matrices,
      )
    else:
      update = optax.adamw(
        self.schedule(steps),
        b2=0.95,  # as Llama was trained: shorter than optax's default
        weight_decay=self.weight_decay,
        mask=_matrices,
      )
    return optax.chain(optax.clip_by_global_norm(self.clip_norm), update)


def _matrices(params: PyTree) -> PyTree:
  return jax.tree.map(lambda leaf: leaf.ndim > 1, params)


def _layer_matrices(params: PyTree) -> PyTree:
  """Which parameters muon is for: not embedding and head."""
  matrix = contrib.MuonDimensionNumbers()
  return {
    path: matrix if path.startswith("layers.") and _is_matrix(leaf) else None
    for path, leaf in params.items()
  }


def _is_matrix(leaf: Any) -> bool:
  return getattr(leaf, "ndim", 0) == 2  # optax leaves out some by a mark
