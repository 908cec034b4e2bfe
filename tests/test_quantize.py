"""Rows in 8 bits: how far off they are, and rows that are odd."""

import ml_dtypes
import numpy as np
import pytest

from specdec_jax.quantize import dequantize, quantize

TINY = np.finfo(np.float32).tiny
LARGEST = np.finfo(np.float32).max


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_no_number_is_off_by_more_than_half_a_step(dtype):
  rng = np.random.default_rng(0)
  size_O1 = 10.0 ** rng.integers(-3, 4, (50, 1))
  rows_OI = (size_O1 * rng.standard_normal((50, 33))).astype(dtype)
  q_OI, scale_O = quantize(rows_OI)
  assert (q_OI.dtype, scale_O.dtype) == (np.int8, np.float32)
  # The step is one of 127 up to the row's own largest number, which is kept.
  wide_OI = rows_OI.astype(float)
  np.testing.assert_allclose(scale_O, abs(wide_OI).max(1) / 127, rtol=1e-6)
  assert (abs(q_OI.astype(int)).max(axis=1) == 127).all()
  error_OI = abs(dequantize(q_OI, scale_O) - wide_OI)
  assert (error_OI <= scale_O[:, None] / 2 * (1 + 1e-4)).all()


def test_both_signs_reach_as_far():
  q_OI, _ = quantize(np.array([[1.0, -1.0], [-3.0, 2.0]]))
  np.testing.assert_array_equal(q_OI, [[127, -127], [-127, 85]])


def test_whole_numbers_are_kept():
  rows_OI = np.array([[-127, 5, 0, 126], [1, 127, -3, 64]], np.float32)
  q_OI, scale_O = quantize(rows_OI / 4)
  np.testing.assert_array_equal(q_OI, rows_OI)
  np.testing.assert_array_equal(dequantize(q_OI, scale_O), rows_OI / 4)


# Of numbers that small devices make zeros.
@pytest.mark.parametrize("size", [0.0, -0.0, 1e-45, 1e-40, 100 * TINY])
def test_rows_of_nothing_are_zero(size):
  q_OI, scale_O = quantize(np.array([[size, -size], [1, 2]], np.float32))
  assert scale_O[0] == 1
  np.testing.assert_array_equal(q_OI, [[0, 0], [64, 127]])


@pytest.mark.parametrize("size", [128 * TINY, 1e-30, 1e30, LARGEST / 2])
def test_small_and_large_rows(size):
  row_OI = np.float32(size) * np.array([[1, -0.6, 0.3]], np.float32)
  q_OI, scale_O = quantize(row_OI)
  np.testing.assert_array_equal(q_OI, [[127, -76, 38]])
  error_OI = abs(dequantize(q_OI, scale_O) - row_OI)
  assert (error_OI <= scale_O[:, None] / 2 * (1 + 1e-4)).all()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_stays_so(odd):
  q_OI, scale_O = quantize(np.array([[1.0, odd], [1.0, 2.0]]))
  assert not np.isfinite(scale_O[0])
  np.testing.assert_array_equal(q_OI[1], [64, 127])
