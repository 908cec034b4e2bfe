"""Static shapes for ragged batches: few of them, so that few compile."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specdec_jax.decode import Batch, Engine
from specdec_jax.sampling import Law, SamplingParams
from specdec_jax.types import Array

_CHUNKS = (256, 64, 16)  # tokens of a prompt that one pass may take
_LEAST_SLOTS = 64
_MAX_WASTE = 1.5  # a chunk is too large if the passes feed more than this


@dataclasses.dataclass(frozen=True)
class Bucket:
  """The shapes that a program is compiled for.

  Attributes:
    batch: rows, B.
    slots: cache slots of a row, S.
    chunk: tokens of each row in one pass of prefill; divides S.
    num_chunks: passes of prefill; a value, nothing is compiled for it.
    shards: over how many devices the rows are spread; divides B.
  """

  batch: int
  slots: int
  chunk: int
  num_chunks: int
  shards: int

  @classmethod
  def of(
    cls, lengths: list[int], limits: list[int], engine: Engine, shards: int
  ) -> "Bucket":
    """The bucket of a batch.

    Args:
      lengths: of the prompts.
      limits: lengths at which the rows end.
      engine: what it is compiled for.
      shards: over how many devices the rows are spread.
    """
    batch = _power_of_two(-(-len(lengths) // shards)) * shards
    slots = _slots(max(limits) + engine.spare_slots)
    # The last token of a prompt is left to the first block.
    longest = max(lengths) - 1
    chunk = next(
      (
        size
        for size in _CHUNKS
        if slots % size == 0 and _up(longest, size) <= _MAX_WASTE * longest
      ),
      _CHUNKS[-1],
    )
    return cls(batch, slots, chunk, _up(longest, chunk) // chunk, shards)


def _up(count: int, size: int) -> int:
  """The least multiple of `size` of at least `count`."""
  return -(-count // size) * size


def _power_of_two(count: int) -> int:
  """The least power of two of at least `count`."""
  return 1 << (count - 1).bit_length()


def _slots(count: int) -> int:
  """The least cache size of at least `count`: 2**n or 1.5 * 2**n."""
  count = max(count, _LEAST_SLOTS)
  size = _power_of_two(count)
  return size * 3 // 4 if count <= size * 3 // 4 else size


def batch_within(count: int, shards: int) -> int:
  """The largest batch of a bucket of at most `count` rows, or 0."""
  return shards * _power_below(count // shards)


def slots_within(count: int) -> int:
  """The largest cache size of a bucket of at most `count` slots, or 0."""
  power = _power_below(count)
  size = power * 3 // 2 if count >= power * 3 // 2 else power
  return size if size >= _LEAST_SLOTS else 0


def _power_below(count: int) -> int:
  """The greatest power of two of at most `count`, or 0."""
  return 1 << (count.bit_length() - 1) if count > 0 else 0


def shapes(eos_ids: Sequence[int], bucket: Bucket) -> Batch:
  """The shapes of what `pack` makes."""

  def rows(dtype: Any, *width: int) -> Any:
    return jax.ShapeDtypeStruct((bucket.batch, *width), dtype)

  number = rows(jnp.float32)
  return Batch(
    tokens_BS=rows(jnp.int32, bucket.slots),
    length_B=rows(jnp.int32),
    limit_B=rows(jnp.int32),
    seed_B=rows(jnp.uint32),
    eos_BE=rows(jnp.int32, _eos_width(eos_ids)),
    law=Law(number, rows(jnp.int32), number, number),
  )


def _eos_width(eos_ids: Sequence[int]) -> int:
  """A power of two: another model's EOS ids rarely mean a new program."""
  return _power_of_two(max(len(eos_ids), 4))


def pack(
  rows: list[list[int]],
  limits: list[int],
  params: list[SamplingParams],
  eos_ids: Sequence[int],
  bucket: Bucket,
) -> Batch:
  """The batch as arrays; rows that fill up the bucket end at once."""
  spare = bucket.batch - len(rows)

  def column(values: Iterable, dtype: Any, fill: float) -> Array:
    return jnp.asarray([*values, *[fill] * spare], dtype)

  tokens_BS = np.zeros((bucket.batch, bucket.slots), np.int32)
  for index, row in enumerate(rows):
    tokens_BS[index, : len(row)] = row
  eos_E = np.full(_eos_width(eos_ids), -1, np.int32)
  eos_E[: len(eos_ids)] = eos_ids
  return Batch(
    tokens_BS=jnp.asarray(tokens_BS),
    length_B=column(map(len, rows), jnp.int32, 1),
    limit_B=column(limits, jnp.int32, 1),
    seed_B=column((p.seed for p in params), jnp.uint32, 0),
    eos_BE=jnp.asarray(np.tile(eos_E, (bucket.batch, 1))),
    law=Law(
      column((p.temperature for p in params), jnp.float32, 0),
      column((p.top_k for p in params), jnp.int32, 0),
      column((p.top_p for p in params), jnp.float32, 1),
      column((p.min_p for p in params), jnp.float32, 0),
    ),
  )
