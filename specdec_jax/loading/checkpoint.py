"""Reads a folder of safetensors files, tensor by tensor.

Pickles are never read: they can run code.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  (numpy learns "bfloat16" from it)
import numpy as np
import safetensors

_READABLE = ("BF16", "F16", "F32")
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


@dataclasses.dataclass(frozen=True)
class Tensor:
  """A tensor in a file.

  Attributes:
    file: the file it is in.
    name: its name there.
    shape: its shape.
    dtype: "BF16", "F16", "F32", or something we cannot read.
  """

  file: Path
  name: str
  shape: tuple[int, ...]
  dtype: str

  @property
  def readable(self) -> bool:
    """Whether it holds plain floating point numbers."""
    return self.dtype in _READABLE


def read_json(path: Path) -> dict[str, Any]:
  """Reads a JSON object.

  Raises:
    ValueError: the file is not there, cannot be read, or is no JSON object.
  """
  # A device or a pipe could be read forever.
  if not path.is_file():
    raise ValueError(f"no {path.name} in {path.parent}")
  try:
    value = json.loads(path.read_text(encoding="utf-8"))
  except OSError as error:
    raise ValueError(f"cannot read {path}: {error.strerror}") from error
  # Not UTF-8, no JSON, numbers of thousands of digits, or nested too deeply.
  except (ValueError, RecursionError) as error:
    raise ValueError(f"{path} is not JSON: {error}") from error
  if not isinstance(value, dict):
    raise ValueError(f"{path} holds {type(value).__name__}, expected an object")
  return value


def find_files(folder: Path) -> list[Path]:
  """The safetensors files of a model, in the order transformers prefers.

  Raises:
    ValueError: there are none, or files that the index names are missing.
  """
  single = folder / "model.safetensors"
  index = folder / "model.safetensors.index.json"
  if single.is_file():
    return [single]
  if index.is_file():
    return _indexed(folder, index)
  files = sorted(folder.glob("*.safetensors"))
  if files:
    return files
  pickles = sorted(p.name for pattern in _PICKLES for p in folder.glob(pattern))
  if pickles:
    raise ValueError(
      f"{folder} has weights as pickles only ({', '.join(pickles[:3])}); "
      "pickles can run code and are never read. Convert them to safetensors"
    )
  raise ValueError(f"no *.safetensors in {folder}")


def _indexed(folder: Path, index: Path) -> list[Path]:
  weights = read_json(index).get("weight_map")
  if not isinstance(weights, dict) or not weights:
    raise ValueError(f"{index} has no weight_map")
  names = sorted({str(name) for name in weights.values()})
  outside = [name for name in names if Path(name).name != name]
  if outside:
    raise ValueError(
      f"{index} names files outside the folder: {_first(outside)}"
    )
  there = {path.name for path in folder.iterdir() if path.is_file()}
  missing = [name for name in names if name not in there]
  if missing:
    raise ValueError(
      f"{index} names {len(names)} files, of which {len(missing)} are "
      f"missing: {_first(missing)}"
    )
  return [folder / name for name in names]


def _first(names: list[str]) -> str:
  """The first names of a list that may be long, as may each of them."""
  return ", ".join(n if len(n) < 80 else n[:80] + ".." for n in names[:3])


class Checkpoint:
  """The tensors of some safetensors files, by name.

  Attributes:
    tensors: all tensors by name; nothing but headers has been read.
  """

  def __init__(self, files: list[Path]):
    """Reads the headers.

    Raises:
      ValueError: a file is truncated or corrupt, or two hold one tensor.
    """
    self.tensors: dict[str, Tensor] = {}
    for file in files:
      for tensor in _headers(file):
        other = self.tensors.get(tensor.name)
        if other is not None:
          raise ValueError(
            f"{tensor.name} is in both {other.file.name} and {file.name}"
          )
        self.tensors[tensor.name] = tensor

  def check(
    self,
    expected: Mapping[str, tuple[int, ...]],
    ignored: tuple[str, ...] = (),
    limit: int = 20,
  ) -> None:
    """Compares names and shapes with what a model expects.

    Args:
      expected: shape by name.
      ignored: tensors whose names end so may be there.
      limit: how many faults are listed.

    Raises:
      ValueError: all faults at once.
    """
    faults = []
    for name, shape in expected.items():
      tensor = self.tensors.get(name)
      if tensor is None:
        faults.append(f"{name}: missing")
      elif tensor.shape != shape:
        faults.append(
          f"{name}: wrong shape, expected {list(shape)}, "
          f"got {list(tensor.shape)}"
        )
      elif not tensor.readable:
        faults.append(
          f"{name}: type {tensor.dtype} is not supported; "
          f"supported: {', '.join(_READABLE)}"
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
    """
    tensor = self.tensors[name]
    wanted = tuple(s.stop - s.start for s in index)
    inside = tuple(
      slice(s.start, min(s.stop, size))
      for s, size in zip(index, tensor.shape, strict=True)
    )
    if any(s.start >= s.stop for s in inside):
      return np.zeros(wanted, dtype)
    try:
      with safetensors.safe_open(tensor.file, framework="numpy") as file:
        part = file.get_slice(name)[inside]
    except (safetensors.SafetensorError, OSError) as error:
      raise ValueError(
        f"cannot read {name} of {tensor.file}: {error}"
      ) from error
    if part.dtype != np.dtype(dtype):
      part = part.astype(dtype)
    if part.shape == wanted:
      return part
    padded = np.zeros(wanted, dtype)
    padded[tuple(map(slice, part.shape))] = part
    return padded


def _headers(file: Path) -> Iterator[Tensor]:
  try:
    with safetensors.safe_open(file, framework="numpy") as opened:
      for name in opened.keys():  # noqa: SIM118  (no iterator)
        part = opened.get_slice(name)
        yield Tensor(file, name, tuple(part.get_shape()), part.get_dtype())
  except (safetensors.SafetensorError, OSError) as error:
    raise ValueError(
      f"{file} is truncated, corrupt or not safetensors: {error}"
    ) from error
