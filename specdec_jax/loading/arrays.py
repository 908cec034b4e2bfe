"""A model's weights in memory, as a checkpoint that can be written."""

import numpy as np

from specdec_jax.loading.checkpoint import Checkpoint, Tensor
from specdec_jax.models.config import ModelConfig
from specdec_jax.models.transformer import Params


class Arrays(Checkpoint):
  """Weights under the names and in the layout of Hugging Face."""

  readable = ("float32", "bfloat16")

  def __init__(self, config: ModelConfig, params: Params):
    """Turns parameters into tensors.

    Args:
      config: the model.
      params: its weights, by path. Rows that only fill up its vocabulary are
        left out.
    """
    arrays = {path: np.asarray(value) for path, value in params.items()}
    for path in ("embed.weight", "head.weight"):
      if path in arrays:
        arrays[path] = arrays[path][: config.known_rows]
    shapes = {path: array.shape for path, array in arrays.items()}
    names = {config.family.tensor_name(path) for path in shapes}
    self._arrays: dict[str, np.ndarray] = {}
    for path, place in config.family.stored(shapes, names).items():
      if place.name not in self._arrays:
        self._arrays[place.name] = np.empty(place.shape, arrays[path].dtype)
      whole = tuple(slice(0, size) for size in shapes[path])
      part = arrays[path].T if place.transposed else arrays[path]
      self._arrays[place.name][place.index(whole)] = part
    self.tensors = {
      name: Tensor(array.shape, array.dtype.name)
      for name, array in self._arrays.items()
    }

  def _read(
    self, name: str, index: tuple[slice, ...], dtype: str
  ) -> np.ndarray:
    return self._arrays[name][index].astype(dtype)
