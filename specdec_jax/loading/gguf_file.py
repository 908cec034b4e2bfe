"""Reads the header of a GGUF file, and its tensors row by row.

The package `gguf` knows the types and how to dequantise them. Its own reader
of headers takes most of a minute for a vocabulary of 150,000 tokens and trusts
every length in the file, so the header is read here; the format is that of
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

import dataclasses
import math
import mmap
import struct
from pathlib import Path
from typing import Any

import numpy as np

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_SCALARS = {
  0: "u1", 1: "i1", 2: "u2", 3: "i2", 4: "u4", 5: "i4",
  6: "f4", 7: "?", 10: "u8", 11: "i8", 12: "f8",
}  # fmt: skip
_STRING, _ARRAY = 8, 9
_CHUNK = 2**22  # numbers that are dequantised at a time


@dataclasses.dataclass(frozen=True)
class Entry:
  """A tensor of the file.

  Attributes:
    shape: its shape, rows first.
    type: its type's name, or its number if `gguf` does not know it.
    data: its bytes, a row for each of its rows; none where its type is not
      known.
  """

  shape: tuple[int, ...]
  type: str
  data: np.ndarray


class GgufFile:
  """A file, mapped into memory.

  Attributes:
    entries: its tensors by name.
  """

  def __init__(self, path: Path):
    """Reads the header.

    Raises:
      ValueError: it is no GGUF file that can be read, or `gguf` is missing.
    """
    try:
      with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # closed, or empty
      raise ValueError(f"cannot be read: {error}") from error
    if mapped[:4] != _MAGIC:
      raise ValueError(
        "no GGUF file; expected a model's folder or a .gguf file"
      )
    try:
      import gguf
    except ImportError as error:
      raise ValueError(
        "the package gguf reads such files; install it with "
        "pip install 'specdec-jax[gguf]'"
      ) from error
    self._gguf = gguf
    self._parse(_Cursor(mapped), np.frombuffer(mapped, np.uint8))

  def _parse(self, cursor: "_Cursor", data: np.ndarray) -> None:
    cursor.skip(len(_MAGIC))
    version = cursor.integer("<I")
    if version and version % 2**16 == 0:
      raise ValueError("big-endian; convert it for this machine first")
    if version not in _VERSIONS:
      raise ValueError(
        f"GGUF version {version} is not supported; supported: 2, 3"
      )
    tensors, pairs = cursor.integer("<Q"), cursor.integer("<Q")
    self._metadata: dict[str, Any] = {}
    for _ in range(pairs):
      key = cursor.string()
      self._metadata[key] = cursor.value(cursor.integer("<I"))
    parts = self.get("split.count", int, 1)
    if parts != 1:
      raise ValueError(
        f"one of {parts} parts of a model; join them with llama-gguf-split "
        "--merge"
      )
    infos = []
    for _ in range(tensors):
      name = cursor.string()
      axes = cursor.integer("<I")
      shape = tuple(cursor.integer("<Q") for _ in range(axes))[::-1]
      infos.append((name, shape, cursor.integer("<I"), cursor.integer("<Q")))
    align = self.get("general.alignment", int, 32)
    if align < 1:
      raise ValueError("general.alignment is 0, expected at least 1")
    begin = -(-cursor.position // align) * align
    self.entries = {
      name: self._entry(name, shape, kind, data, begin + offset)
      for name, shape, kind, offset in infos
    }
    if len(self.entries) < len(infos):
      raise ValueError("two tensors have one name")

  def _entry(
    self,
    name: str,
    shape: tuple[int, ...],
    kind: int,
    data: np.ndarray,
    begin: int,
  ) -> Entry:
    types = self._gguf.GGMLQuantizationType
    if kind not in iter(types):
      return Entry(shape, str(kind), data[:0])
    block, block_bytes = self._gguf.GGML_QUANT_SIZES[types(kind)]
    if not shape or min(shape) < 1 or shape[-1] % block:
      raise ValueError(
        f"{name} has shape {list(shape)}, expected rows of a multiple of "
        f"{block} numbers"
      )
    row = shape[-1] // block * block_bytes
    end = begin + math.prod(shape[:-1]) * row
    if end > len(data):
      raise _truncated(f"{name} ends at byte {end}", len(data))
    # A matrix, whatever the tensor's number of axes.
    rows = data[begin:end].reshape(-1, row)
    return Entry(shape, types(kind).name, rows)

  def get(self, key: str, kind: type, default: Any = None) -> Any:
    """A value of the header.

    Args:
      key: its name.
      kind: str, int, float or bool; list for strings, np.ndarray for others.
      default: what to return if it is not there.

    Raises:
      ValueError: it is of another kind.
    """
    value = self._metadata.get(key, default)
    if key in self._metadata and type(value) is not kind:
      raise ValueError(
        f"{key} is of type {type(value).__name__}, expected {kind.__name__}"
      )
    return value

  def read(
    self, name: str, rows: np.ndarray, columns: slice, dtype: str
  ) -> np.ndarray:
    """Dequantises a part of a tensor.

    Args:
      name: its name.
      rows: the numbers of its rows, in the order wanted; a vector is one row.
      columns: a part of each.
      dtype: numpy's name of the type to return.

    Returns:
      A matrix.
    """
    entry = self.entries[name]
    kind = self._gguf.GGMLQuantizationType[entry.type]
    out = np.empty((len(rows), columns.stop - columns.start), dtype)
    step = max(1, _CHUNK // entry.shape[-1])
    for i in range(0, len(rows), step):
      part = entry.data[rows[i : i + step]]
      out[i : i + step] = self._gguf.quants.dequantize(part, kind)[:, columns]
    return out

  def read_vector(self, name: str) -> np.ndarray:
    """Dequantises a vector, float32."""
    whole = slice(0, self.entries[name].shape[-1])
    return self.read(name, np.zeros(1, int), whole, "float32")[0]


def _truncated(what: str, size: int) -> ValueError:
  """Says that what the header tells of is not in the file."""
  return ValueError(f"truncated or corrupt: {what}, the file at {size}")


class _Cursor:
  """Reads values one after the other.

  Counts in the file are believed as long as there is something to read.
  """

  def __init__(self, data: mmap.mmap):
    self._data = data
    self.position = 0

  def skip(self, size: int) -> int:
    """Moves on by this many bytes. Returns where they begin."""
    begin = self.position
    if size > len(self._data) - begin:
      raise _truncated(f"a value ends at byte {begin + size}", len(self._data))
    self.position += size
    return begin

  def integer(self, form: str) -> int:
    (value,) = struct.unpack_from(
      form, self._data, self.skip(struct.calcsize(form))
    )
    return value

  def string(self) -> str:
    size = self.integer("<Q")
    begin = self.skip(size)
    return self._data[begin : begin + size].decode("utf-8")

  def value(self, kind: int) -> Any:
    if kind == _STRING:
      return self.string()
    if kind == _ARRAY:
      inner, count = self.integer("<I"), self.integer("<Q")
      if inner == _STRING:
        return [self.string() for _ in range(count)]
      return self._scalars(self._dtype(inner), count)
    return self._scalars(self._dtype(kind), 1)[0].item()

  def _dtype(self, kind: int) -> str:
    if kind not in _SCALARS:
      raise ValueError(f"the header has a value of the unknown type {kind}")
    return "<" + _SCALARS[kind]

  def _scalars(self, dtype: str, count: int) -> np.ndarray:
    size = np.dtype(dtype).itemsize
    begin = self.skip(count * size)
    return np.frombuffer(self._data, dtype, count, begin)
