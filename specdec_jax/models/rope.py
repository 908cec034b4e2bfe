"""Rotary position embeddings (Su et al. 2021, arXiv:2104.09864)."""

import jax.numpy as jnp
import numpy as np

from specdec_jax.models.config import ModelConfig, RopeScaling
from specdec_jax.types import Array


def frequencies(config: ModelConfig) -> np.ndarray:
  """Radians per position of each pair of dimensions, float32 `[H / 2]`."""
  exponent = np.arange(0, config.head_dim, 2, dtype=np.float32)
  exponent /= np.float32(config.head_dim)
  base = np.float32(config.rope_theta)
  frequency = (1.0 / base**exponent).astype(np.float32)
  if config.rope_scaling is None:
    return frequency
  return _scale(frequency, config.rope_scaling)


def _scale(frequency: np.ndarray, scaling: RopeScaling) -> np.ndarray:
  low = frequency / np.float32(scaling.factor)
  if scaling.kind == "linear":
    return low.astype(np.float32)
  # llama3: short waves stay, long waves are stretched, a ramp in between.
  waves = scaling.original_max_length * frequency / (2 * np.pi)
  ramp = (waves - scaling.low_freq_factor) / (
    scaling.high_freq_factor - scaling.low_freq_factor
  )
  ramp = np.clip(ramp, 0.0, 1.0)
  return ((1 - ramp) * low + ramp * frequency).astype(np.float32)


def angles(config: ModelConfig, position_BT: Array) -> tuple[Array, Array]:
  """Cosines and sines for these positions, float32 `[B, T, 1, H / 2]`."""
  frequency = frequencies(config)[None, None, None]
  angle = position_BT[..., None, None].astype(jnp.float32) * frequency
  return jnp.cos(angle), jnp.sin(angle)


def rotate(x_BTNH: Array, cos: Array, sin: Array) -> Array:
  """Rotates each head, in float32; dimension i pairs with i + H / 2."""
  left, right = jnp.split(x_BTNH.astype(jnp.float32), 2, axis=-1)
  turned = jnp.concatenate(
    [left * cos - right * sin, right * cos + left * sin], axis=-1
  )
  return turned.astype(x_BTNH.dtype)
