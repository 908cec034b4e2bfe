"""Weights in 8 bits: each row of a matrix as whole numbers and one scale.

Row o of a matrix is about scale[o] * q[o], q whole numbers in [-127, 127], and
scale the row's largest magnitude over 127: the vector-wise absmax quantisation
of LLM.int8() (Dettmers et al., arXiv 2208.07339), of the weights alone.
Activations stay as they are. It loses precision: the quantised model is another
model, whose law everything else then is exact to.
"""

import numpy as np

# The path of a quantised parameter, and this, is the path of its scales.
SCALE = "_scale"

_LARGEST = 127  # -128 is left out, so that both signs reach as far


def quantize(rows_OI: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Quantises some rows of a matrix, each by itself.

  Args:
    rows_OI: the rows, of any float type. One that is not finite stays so: all
      of it.

  Returns:
    q_OI: int8. No number is off by more than half of its row's scale.
    scale_O: float32; 1 where the row is zero.
  """
  rows_OI = rows_OI.astype(np.float32, copy=False)
  scale_O = np.max(np.abs(rows_OI), axis=1, initial=0) / np.float32(_LARGEST)
  # Devices take numbers below the smallest normal one for zero, and so do we.
  scale_O[scale_O < np.finfo(np.float32).tiny] = 1
  with np.errstate(invalid="ignore"):
    return np.rint(rows_OI / scale_O[:, None]).astype(np.int8), scale_O


def dequantize(q_OI: np.ndarray, scale_O: np.ndarray) -> np.ndarray:
  """The rows that a quantised model has instead of its own, float32."""
  return np.asarray(q_OI, np.float32) * np.asarray(scale_O)[:, None]
