"""Orbax folders: config.json, a tokenizer, and arrays in `orbax/`.

The arrays are a flat dictionary under the checkpoint's names, as
`Family.tensor_name` gives them, in the checkpoint's layout. Whoever trains
saves `{name: array}` beside the other files of the model, with `ocp.save` or,
step by step, with `ocp.training.Checkpointer`, of which the newest step is
read. `vocab_size` in config.json is the rows of the embedding that was saved.
"""

from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint.experimental.v1 as ocp

from specdec_jax.loading.checkpoint import Checkpoint, Tensor

FOLDER = "orbax"


class OrbaxArrays(Checkpoint):
  """The arrays of an orbax checkpoint.

  They are read one at a time; each device then takes its part of it.
  """

  readable = ("bfloat16", "float16", "float32")

  def __init__(self, folder: Path):
    """Reads the metadata.

    Args:
      folder: the folder of the model.

    Raises:
      ValueError: there is no checkpoint, or not one of a flat dictionary.
    """
    self._path = _newest((folder / FOLDER).resolve())
    try:
      arrays = ocp.metadata(self._path).metadata
    except Exception as error:  # whatever its file systems and parsers raise
      raise ValueError(
        f"cannot read the orbax checkpoint in {self._path}: {error}"
      ) from error
    if not isinstance(arrays, dict) or not all(map(_is_array, arrays.values())):
      raise ValueError(
        f"{self._path} does not hold a flat dictionary of arrays; save them "
        "under the names that Hugging Face gives the tensors"
      )
    self.tensors = {
      name: Tensor(tuple(array.shape), np.dtype(array.dtype).name)
      for name, array in arrays.items()
    }
    self._last = ("", np.empty(0))

  def _read(
    self, name: str, index: tuple[slice, ...], dtype: str
  ) -> np.ndarray:
    if self._last[0] != name:  # else another device's part of the same one
      self._last = (name, self._load(name))
    part = self._last[1][index]
    return part.astype(dtype)

  def _load(self, name: str) -> np.ndarray:
    tensor = self.tensors[name]
    context = ocp.Context()
    context.pytree.loading.partial_load = True
    try:
      with context:
        # An array of numpy, since jax would copy it once more.
        like = np.broadcast_to(np.zeros((), tensor.dtype), tensor.shape)
        return ocp.load(self._path, {name: like})[name]
    except Exception as error:
      raise ValueError(
        f"cannot read {name} of {self._path}: {error}"
      ) from error


def save(folder: Path, arrays: dict[str, np.ndarray]) -> None:
  """Writes the arrays of a model into its folder."""
  ocp.save((folder / FOLDER).resolve(), arrays)


def _newest(path: Path) -> Path:
  """The last step of a training, or the checkpoint itself."""
  steps = [step for step in path.iterdir() if step.name.isdecimal()]
  return max(steps, key=lambda step: int(step.name), default=path)


def _is_array(value: Any) -> bool:
  return hasattr(value, "shape") and hasattr(value, "dtype")
