"""Per-row indexing: every row of a ragged batch stands somewhere else."""

import jax
import jax.numpy as jnp
from jax import lax

from specdec_jax.types import Array


def window(array_BS: Array, start_B: Array, size: int) -> Array:
  """`array[b, start[b] : start[b] + size]` for each row b."""

  def one(row, start):
    return lax.dynamic_slice_in_dim(row, start, size)

  return jax.vmap(one)(array_BS, start_B)


def put(array_BS: Array, start_B: Array, values_BT: Array) -> Array:
  """`array[b, start[b] + t] = values[b, t]`; what falls outside is dropped."""
  rows, width = values_BT.shape
  slot_BT = start_B[:, None] + jnp.arange(width)[None]
  row_B1 = jnp.arange(rows)[:, None]
  return array_BS.at[row_B1, slot_BT].set(values_BT, mode="drop")


def pick(array_BT: Array, index_B: Array) -> Array:
  """`array[b, index[b]]` for each row b; further axes are kept."""

  def one(row, index):
    return lax.dynamic_index_in_dim(row, index, keepdims=False)

  return jax.vmap(one)(array_BT, index_B)
