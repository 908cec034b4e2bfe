"""The key-value cache: a tuple over layers of `(k_BMSH, v_BMSH)`.

A slot holds the token at its position. Nothing in the cache says which slots
are valid: a slot is when it is behind its row's length. Rejected drafts are
thus rolled back by not counting them, and the next pass overwrites them.
"""

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


def extend(
  cache: LayerCache | None,
  key_BTMH: Array,
  value_BTMH: Array,
  position_BT: Array,
) -> LayerCache:
  """The cache with T more slots; None is one of no slots but these."""
  if cache is None:
    return key_BTMH.swapaxes(1, 2), value_BTMH.swapaxes(1, 2)
  key_BMSH, value_BMSH = cache
  return (
    write(key_BMSH, key_BTMH, position_BT),
    write(value_BMSH, value_BTMH, position_BT),
  )


def write(cache_BMSH: Array, new_BTMH: Array, position_BT: Array) -> Array:
  """Writes T slots of each row; positions at and past S are dropped.

  All three leading dimensions are indexed. Then a donated cache is updated in
  place, on CPU and on TPU. Where one of them is a `:` or is mapped over, XLA
  for TPU lays the whole cache out anew and back, in each pass.
  """
  batch, heads = cache_BMSH.shape[:2]
  row = jnp.arange(batch)[:, None, None]
  head = jnp.arange(heads)[None, :, None]
  new_BMTH = new_BTMH.swapaxes(1, 2).astype(cache_BMSH.dtype)
  return cache_BMSH.at[row, head, position_BT[:, None, :]].set(
    new_BMTH, mode="drop", unique_indices=True
  )
