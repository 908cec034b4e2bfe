"""Rotary position embeddings (Su et al. 2021, arXiv:2104.09864)."""

import dataclasses
import math
from typing import Protocol

import jax.numpy as jnp
import numpy as np

from specdec_jax.models.fields import Fields
from specdec_jax.types import Array

Angles = tuple[Array, Array]


class Scaling(Protocol):
  """How rotary frequencies are stretched for long contexts.

  Static: the frequencies cannot follow the length of a text, since a cache
  holds keys that were rotated when it was shorter.
  """

  @property
  def amplitude(self) -> float:
    """What rotated queries and keys are multiplied by."""

  def __call__(self, frequency: np.ndarray, theta: float) -> np.ndarray:
    """Stretches frequencies.

    Args:
      frequency: radians per position of each pair, float32 `[H / 2]`.
      theta: their base.
    """


@dataclasses.dataclass(frozen=True)
class Linear:
  """All positions shrink alike (Chen et al. 2023, arXiv:2306.15595).

  Attributes:
    factor: by how much.
  """

  factor: float

  amplitude = 1.0

  def __call__(self, frequency: np.ndarray, theta: float) -> np.ndarray:
    return frequency / np.float32(self.factor)


@dataclasses.dataclass(frozen=True)
class Llama3:
  """Long waves are stretched, short ones are not, a ramp in between.

  As in Llama 3.1; a ramp over the turns that a wave makes in the original
  context.

  Attributes:
    factor: by how much long waves are stretched.
    low_freq_factor: waves of fewer turns are long.
    high_freq_factor: waves of more turns are short.
    original_max_length: the context of the pretrained model, in tokens.
  """

  factor: float
  low_freq_factor: float
  high_freq_factor: float
  original_max_length: int

  amplitude = 1.0

  def __call__(self, frequency: np.ndarray, theta: float) -> np.ndarray:
    turns = self.original_max_length * frequency / (2 * np.pi)
    ramp = (turns - self.low_freq_factor) / (
      self.high_freq_factor - self.low_freq_factor
    )
    return _mix(frequency, self.factor, np.clip(ramp, 0, 1))


@dataclasses.dataclass(frozen=True)
class Yarn:
  """A ramp over pairs of dimensions (Peng et al. 2023, arXiv:2309.00071).

  Attributes:
    factor: by how much long waves are stretched.
    original_max_length: the context of the pretrained model, in tokens.
    amplitude: what rotated queries and keys are multiplied by, the root of the
      paper's 1 / t.
    beta_fast: waves of more turns in the original context are left alone.
    beta_slow: waves of fewer turns are stretched by the whole factor.
    truncate: whether the ramp begins and ends at whole pairs.
  """

  factor: float
  original_max_length: int
  amplitude: float
  beta_fast: float = 32.0
  beta_slow: float = 1.0
  truncate: bool = True

  def __call__(self, frequency: np.ndarray, theta: float) -> np.ndarray:
    pairs = len(frequency)

    def pair(turns: float) -> float:
      wave = self.original_max_length / (2 * math.pi * turns)
      return pairs * math.log(wave) / math.log(theta)

    low, high = pair(self.beta_fast), pair(self.beta_slow)
    if self.truncate:
      low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, 2 * pairs - 1)
    width = high - low or 0.001
    ramp = (np.arange(pairs, dtype=np.float32) - low) / width
    return _mix(frequency, self.factor, 1 - np.clip(ramp, 0, 1))


def _mix(frequency: np.ndarray, factor: float, kept: np.ndarray) -> np.ndarray:
  """Stretches frequencies by a factor, but for the part that is kept."""
  stretched = frequency / np.float32(factor)
  return ((1 - kept) * stretched + kept * frequency).astype(np.float32)


def scaling_from_hf(
  fields: Fields, theta: float, original: int
) -> Scaling | None:
  """Reads `rope_scaling` of a config.json.

  "dynamic" changes the frequencies once a text is longer than
  max_position_embeddings. No text here is, and up to there it changes nothing.

  Args:
    fields: the object.
    theta: base of the frequencies.
    original: the context of the pretrained model if the object does not say.
  """
  kind = fields.choice(
    "type" if "rope_type" not in fields else "rope_type",
    "default",
    ("default", "linear", "dynamic", "llama3", "yarn"),
  )
  if kind in ("", "default"):
    return None
  factor = fields.number("factor")
  if kind == "linear":
    return Linear(factor)
  if kind == "dynamic":
    return None
  original = fields.integer("original_max_position_embeddings", original)
  if kind == "llama3":
    low = fields.number("low_freq_factor")
    high = fields.number("high_freq_factor")
    if 0 < high <= low:
      fields.refuse("high_freq_factor", f"more than low_freq_factor, {low}")
    return Llama3(factor, low, high, original)
  fast = fields.number("beta_fast", 32.0)
  slow = fields.number("beta_slow", 1.0)
  if 0 < fast <= slow:
    fields.refuse("beta_fast", f"more than beta_slow, {slow}")
  if 0 < theta <= 1:
    fields.faults.append(f"rope_theta is {theta}, expected more than 1")
  amplitude = _yarn_amplitude(factor)
  if "mscale" in fields and "mscale_all_dim" in fields:
    amplitude = _yarn_amplitude(
      factor, fields.number("mscale")
    ) / _yarn_amplitude(factor, fields.number("mscale_all_dim"))
  amplitude = fields.number("attention_factor", amplitude)
  truncate = fields.boolean("truncate", True)
  return Yarn(factor, original, amplitude, fast, slow, truncate)


def _yarn_amplitude(factor: float, weight: float = 1.0) -> float:
  """What the authors recommend."""
  return 0.1 * weight * math.log(factor) + 1 if factor > 1 else 1.0


def angles(
  position_BT: Array, head_dim: int, theta: float, scaling: Scaling | None
) -> Angles:
  """Cosines and sines for these positions, float32 `[B, T, 1, H / 2]`.

  Args:
    position_BT: positions of the tokens.
    head_dim: H, even.
    theta: base of the frequencies.
    scaling: how they are stretched.
  """
  exponent = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
  frequency = (1.0 / np.float32(theta) ** exponent).astype(np.float32)
  amplitude = 1.0
  if scaling is not None:
    frequency, amplitude = scaling(frequency, theta), scaling.amplitude
  position_BT11 = position_BT[..., None, None].astype(jnp.float32)
  angle = position_BT11 * frequency[None, None, None]
  return jnp.cos(angle) * amplitude, jnp.sin(angle) * amplitude


def rotate(x_BTNH: Array, cos: Array, sin: Array) -> Array:
  """Rotates each head, in float32; dimension i pairs with i + H / 2."""
  left, right = jnp.split(x_BTNH.astype(jnp.float32), 2, axis=-1)
  turned = jnp.concatenate(
    [left * cos - right * sin, right * cos + left * sin], axis=-1
  )
  return turned.astype(x_BTNH.dtype)
