"""Numbers that are none any more, and where."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from specdec_jax.models.language_model import LanguageModel
from specdec_jax.types import Array


def largest(arrays: Mapping[str, Array]) -> Array:
  """The largest magnitude in each array, by sorted name.

  It is finite where the whole array is, and costs one look at it.
  """
  return jnp.stack([jnp.abs(arrays[name]).max() for name in sorted(arrays)])


def where(names: list[str], weights: Array, gradients: Array) -> str:
  """Says where a step met numbers that are not finite.

  Args:
    names: of the weights, sorted.
    weights: `largest` of them before the step.
    gradients: the same of their gradients.
  """
  for kind, measured in (("weights", weights), ("gradients", gradients)):
    broken = [
      name
      for name, value in zip(names, np.asarray(measured), strict=True)
      if not np.isfinite(value)
    ]
    if broken:
      return (
        f"the {kind} of {len(broken)} of {len(names)} arrays are not finite, "
        f"first those of {broken[0]}"
      )
  return "all weights and gradients are finite"


def check(model: LanguageModel) -> None:
  """Looks at a model's weights before anything is made of them.

  Raises:
    ValueError: they are not finite, with the first place.
  """
  leaves, _ = jax.tree_util.tree_flatten_with_path(model.params)
  for path, leaf in leaves:
    if not jnp.isfinite(leaf).all():
      name = jax.tree_util.keystr(path, simple=True, separator=".")
      raise ValueError(
        f"{model.name}: expected finite weights, but {name} has some that are "
        "infinite or no number; take another checkpoint"
      )
