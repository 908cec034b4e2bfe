"""Where a row ends, decided on the device, inside the block."""

import enum
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from specdec_jax.arrays import pick
from specdec_jax.types import Array


class Finish(enum.IntEnum):
  """Why a row ended; RUNNING while it has not."""

  RUNNING = 0
  EOS = 1
  LENGTH = 2
  NONFINITE = 3
  STOP = 4


class Ending(NamedTuple):
  """What becomes of the new tokens of each row.

  Attributes:
    count_B: how many are left, the one that ends the row among them.
    eos_B: whether an EOS ends it.
    stop_B: whether a stop string does.
    state_B: where the automaton of the stop strings is after them.
  """

  count_B: Array
  eos_B: Array
  stop_B: Array
  state_B: Array | None


def find_end(
  token_BT: Array,
  count_B: Array,
  eos_BE: Array,
  state_B: Array | None = None,
  table_AV: Array | None = None,
  early_B: Array | int = 0,
) -> Ending:
  """Cuts the new tokens of each row after the first that ends it.

  Args:
    token_BT: new tokens of each row.
    count_B: how many of them count.
    eos_BE: the ids that end each row, padded with -1.
    state_B: where the automaton of the stop strings is; None without.
    table_AV: the automaton, see `StopStrings`.
    early_B: how many of the tokens come too early to complete a stop string.
  """
  place_1T = jnp.arange(token_BT.shape[1])[None]
  counts_BT = place_1T < count_B[:, None]
  eos_BT = (token_BT[..., None] == eos_BE[:, None, :]).any(axis=-1) & counts_BT
  stop_BT, state_BT = jnp.zeros_like(eos_BT), None
  if state_B is not None and table_AV is not None:
    state_BT, stop_BT = _follow(table_AV, state_B, token_BT)
    stop_BT &= counts_BT & (place_1T >= jnp.reshape(early_B, (-1, 1)))
    state_BT = jnp.concatenate([state_B[:, None], state_BT], axis=1)
  end_BT = eos_BT | stop_BT
  ended_B, end_B = end_BT.any(axis=1), jnp.argmax(end_BT, axis=1)
  count_B = jnp.where(ended_B, end_B + 1, count_B)
  eos_B = ended_B & pick(eos_BT, end_B)
  if state_BT is not None:
    state_B = pick(state_BT, count_B)
  return Ending(count_B, eos_B, ended_B & ~eos_B, state_B)


def _follow(
  table_AV: Array, state_B: Array, token_BT: Array
) -> tuple[Array, Array]:
  """The state after each token, and whether a stop string ends in it."""

  def one(state_B: Array, token_B: Array) -> tuple[Array, tuple[Array, Array]]:
    entry_B = table_AV[state_B, token_B]
    stop_B = entry_B < 0
    state_B = jnp.where(stop_B, ~entry_B, entry_B)
    return state_B, (state_B, stop_B)

  _, (state_TB, stop_TB) = lax.scan(one, state_B, token_BT.T)
  return state_TB.T, stop_TB.T
