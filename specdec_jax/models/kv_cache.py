"""The key-value cache: a tuple over layers of `(k_BMSH, v_BMSH)`.

A slot holds the token at its position. Nothing in the cache says which slots
are valid: a slot is when it is behind its row's length. Rejected drafts are
thus rolled back by not counting them, and the next pass overwrites them.
"""

import jax
import jax.numpy as jnp

from specdec_jax.types import Array

LayerCache = tuple[Array, Array]
Cache = tuple[LayerCache, ...]


def init(
  num_layers: int,
  batch: int,
  kv_heads: int,
  slots: int,
  head_dim: int,
  dtype: str,
) -> Cache:
  """An empty cache.

  Zeros, never `jnp.empty`: masked slots have weight 0, and 0 * NaN is NaN.
  """
  shape = (batch, kv_heads, slots, head_dim)
  return tuple(
    (jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))
    for _ in range(num_layers)
  )


def write(cache_BMSH: Array, new_BTMH: Array, position_BT: Array) -> Array:
  """Writes T slots of each row; positions at and past S are dropped.

  Rows and heads are mapped over, not indexed: XLA then knows that each shard
  writes to itself, and gathers nothing. A donated cache is updated in place.
  """

  def write_head(cache_SH: Array, new_TH: Array, position_T: Array) -> Array:
    return cache_SH.at[position_T].set(new_TH, mode="drop", unique_indices=True)

  write_row = jax.vmap(write_head, in_axes=(0, 0, None))
  new_BMTH = new_BTMH.swapaxes(1, 2).astype(cache_BMSH.dtype)
  return jax.vmap(write_row)(cache_BMSH, new_BMTH, position_BT)
