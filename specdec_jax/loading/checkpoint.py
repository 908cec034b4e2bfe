"""The weights of a model as they are stored: tensors by name, read in parts."""

import abc
import dataclasses
from collections.abc import Mapping

import ml_dtypes  # noqa: F401  (numpy learns "bfloat16" from it)
import numpy as np


@dataclasses.dataclass(frozen=True)
class Tensor:
  """A tensor that is stored.

  Attributes:
    shape: its shape.
    dtype: what the format calls its type.
  """

  shape: tuple[int, ...]
  dtype: str


class Checkpoint(abc.ABC):
  """Tensors under the names and in the layout of Hugging Face.

  Attributes:
    tensors: all tensors by name; nothing but headers has been read.
    readable: the types of weights that can be read.
    integer: what the format calls int32, the type of token ids.
  """

  tensors: Mapping[str, Tensor]
  readable: tuple[str, ...]
  integer: str = "int32"

  def check(
    self,
    expected: Mapping[str, Tensor],
    ignored: tuple[str, ...] = (),
    limit: int = 20,
  ) -> None:
    """Compares names and shapes with what a model expects.

    Args:
      expected: tensors by name, their types as numpy calls them: int32 is
        read as it is, while weights may have any type that can be read.
      ignored: tensors whose names end so may be there.
      limit: how many faults are listed.

    Raises:
      ValueError: all faults at once.
    """
    faults = []
    for name, wanted in expected.items():
      tensor = self.tensors.get(name)
      if tensor is None:
        faults.append(f"{name}: missing")
        continue
      is_integer = wanted.dtype == "int32"
      types = (self.integer,) if is_integer else self.readable
      if tensor.shape != wanted.shape:
        faults.append(
          f"{name}: wrong shape, expected {list(wanted.shape)}, "
          f"got {list(tensor.shape)}"
        )
      elif tensor.dtype not in types:
        faults.append(
          f"{name}: type {tensor.dtype} is not supported; "
          f"supported: {', '.join(types)}"
        )
    for name in self.tensors:
      if name not in expected and not name.endswith(ignored):
        faults.append(f"{name}: unexpected")
    if faults:
      more = len(faults) - limit
      listed = faults[:limit] + ([f"and {more} more"] if more > 0 else [])
      count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
      raise ValueError(
        f"the checkpoint does not fit its config.json, {count}:\n  "
        + "\n  ".join(listed)
      )

  def read(self, name: str, index: tuple[slice, ...], dtype: str) -> np.ndarray:
    """Reads a part of a tensor.

    Args:
      name: its name.
      index: `slice(start, stop)` for each dimension. What lies past the
        tensor is zeros.
      dtype: numpy's name of the type to return.

    Raises:
      ValueError: the file cannot be read.
    """
    wanted = tuple(s.stop - s.start for s in index)
    inside = tuple(
      slice(s.start, min(s.stop, size))
      for s, size in zip(index, self.tensors[name].shape, strict=True)
    )
    if any(s.start >= s.stop for s in inside):
      return np.zeros(wanted, dtype)
    part = self._read(name, inside, dtype)
    if part.shape == wanted:
      return part
    padded = np.zeros(wanted, dtype)
    padded[tuple(map(slice, part.shape))] = part
    return padded

  @abc.abstractmethod
  def _read(
    self, name: str, index: tuple[slice, ...], dtype: str
  ) -> np.ndarray:
    """As `read`, for a part that is not empty and inside of the tensor."""
