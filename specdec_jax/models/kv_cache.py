"""The key-value cache: a tuple over layers of `(k_BMSH, v_BMSH)`.

A slot holds the token at its position. Nothing in the cache says which slots
are valid: a slot is when it is behind its row's length. Rejected drafts are
thus rolled back by not counting them, and the next pass overwrites them.
"""

from collections.abc import Sequence

import jax.numpy as jnp

from specdec_jax.types import Array

LayerCache = tuple[Array, Array]
Cache = tuple[LayerCache, ...]

_NOWHERE = 2**30


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


def valid(slots: int, start_B: Array) -> Array:
  """The position of each slot, `[B, S]`; past any token where it is not valid.

  Args:
    slots: S.
    start_B: what is behind it is valid.
  """
  slot_1S = jnp.arange(slots)[None]
  return jnp.where(slot_1S < start_B[:, None], slot_1S, _NOWHERE)


def extend(
  cache: Cache, new: Sequence[LayerCache], position_BT: Array
) -> Cache:
  """The cache with T more slots, of keys and values `[B, M, T, H]`."""
  return tuple(
    (write(key, new_key, position_BT), write(value, new_value, position_BT))
    for (key, value), (new_key, new_value) in zip(cache, new, strict=True)
  )


def write(cache_BMSH: Array, new_BMTH: Array, position_BT: Array) -> Array:
  """Writes T slots of each row; positions at and past S are dropped.

  All three leading dimensions are indexed. Then a donated cache is updated in
  place, on CPU and on TPU. Where one of them is a `:` or is mapped over, XLA
  for TPU lays the whole cache out anew and back, in each pass.
  """
  batch, heads = cache_BMSH.shape[:2]
  row = jnp.arange(batch)[:, None, None]
  head = jnp.arange(heads)[None, :, None]
  return cache_BMSH.at[row, head, position_BT[:, None, :]].set(
    new_BMTH.astype(cache_BMSH.dtype), mode="drop", unique_indices=True
  )
