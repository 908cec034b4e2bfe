"""Where a row ends, decided on the device, inside the block."""

import enum

import jax.numpy as jnp

from specdec_jax.types import Array


class Finish(enum.IntEnum):
  """Why a row ended; RUNNING while it has not."""

  RUNNING = 0
  EOS = 1
  LENGTH = 2
  NONFINITE = 3


def until_eos(
  token_BT: Array, count_B: Array, eos_BE: Array
) -> tuple[Array, Array]:
  """Cuts the first `count_B` tokens of each row after their first EOS.

  Args:
    token_BT: new tokens of each row.
    count_B: how many of them count.
    eos_BE: the ids that end each row, padded with -1.

  Returns:
    How many tokens are left, the EOS among them, and whether there is one.
  """
  eos_BT = (token_BT[..., None] == eos_BE[:, None, :]).any(axis=-1)
  eos_BT &= jnp.arange(token_BT.shape[1])[None] < count_B[:, None]
  found_B = eos_BT.any(axis=1)
  return jnp.where(found_B, jnp.argmax(eos_BT, axis=1) + 1, count_B), found_B
