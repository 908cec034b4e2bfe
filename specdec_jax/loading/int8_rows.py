"""Rows of a matrix in int8, made from the stored ones as they are read."""

from collections.abc import Callable

import numpy as np

from specdec_jax import quantize

Bounds = tuple[slice, ...]

_CHUNK = 2**24  # numbers that are quantised at a time


class Int8Rows:
  """A matrix `[out, in]`, quantised.

  The scale of a row needs the whole row, also where a device holds some of its
  columns only. So rows are read whole, and once for all devices, weights and
  scales; what was made of them is kept.
  """

  def __init__(self, read: Callable[[Bounds], np.ndarray], columns: int):
    """Takes what reads a part of the matrix, and how many columns it has."""
    self._read = read
    self._columns = columns
    self._made: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = {}

  def weight(self, bounds: Bounds) -> np.ndarray:
    """A part of the matrix, int8."""
    rows, columns = bounds
    return self._rows(rows)[0][:, columns]

  def scale(self, bounds: Bounds) -> np.ndarray:
    """The scales of some rows, float32."""
    return self._rows(bounds[0])[1]

  def _rows(self, rows: slice) -> tuple[np.ndarray, np.ndarray]:
    key = rows.start, rows.stop
    if key not in self._made:
      self._made[key] = self._quantized(*key)
    return self._made[key]

  def _quantized(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
    q_OI = np.empty((stop - start, self._columns), np.int8)
    scale_O = np.empty(stop - start, np.float32)
    step = max(_CHUNK // self._columns, 1)
    for first in range(start, stop, step):
      last = min(first + step, stop)
      part = slice(first - start, last - start)
      q_OI[part], scale_O[part] = quantize.quantize(
        self._read((slice(first, last), slice(0, self._columns)))
      )
    return q_OI, scale_O
