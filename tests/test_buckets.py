"""Buckets are few, and large enough."""

import dataclasses

import jax
import pytest

from specdec_jax.buckets import (
  Bucket,
  batch_within,
  pack,
  shapes,
  slots_within,
)
from specdec_jax.decode import Engine
from specdec_jax.sampling import SamplingParams


@dataclasses.dataclass(frozen=True)
class _Drafter:
  num_draft_tokens: int


def _bucket(lengths, limits, draft_tokens=4, shards=1) -> Bucket:
  engine = Engine(None, _Drafter(draft_tokens), None)
  return Bucket.of(lengths, limits, engine, shards)


def test_every_pass_fits():
  for limit in range(2, 1100):
    for length in {1, 2, 17, limit // 2, limit - 1} - {0}:
      bucket = _bucket([min(length, limit - 1)], [limit])
      assert bucket.slots >= limit + 4
      assert bucket.slots % bucket.chunk == 0
      covered = bucket.chunk * bucket.num_chunks
      assert min(length, limit - 1) - 1 <= covered <= bucket.slots


def test_a_cache_is_never_twice_too_large():
  for limit in range(61, 5000):
    assert _bucket([1], [limit]).slots <= 1.5 * (limit + 4) + 1


def test_few_programs():
  found = {
    (bucket.slots, bucket.chunk)
    for limit in range(2, 4096)
    for bucket in [_bucket([max(limit // 2, 1)], [limit])]
  }
  assert len(found) <= 24


@pytest.mark.parametrize(
  "rows, shards, batch", [(1, 1, 1), (3, 1, 4), (8, 1, 8), (3, 2, 4), (5, 4, 8)]
)
def test_batches_are_powers_of_two_for_each_device(rows, shards, batch):
  assert _bucket([3] * rows, [9] * rows, shards=shards).batch == batch


def test_what_fits_below_a_bound_is_a_bucket():
  for count in range(1, 300):
    rows = batch_within(count, 1)
    assert _bucket([1] * rows, [2] * rows).batch == rows <= count < 2 * rows
  assert [batch_within(n, 4) for n in (3, 4, 7, 8)] == [0, 4, 4, 8]
  for count in range(64, 3000):
    slots = slots_within(count)
    assert _bucket([1], [slots - 4]).slots == slots <= count <= 1.5 * slots
  assert slots_within(63) == 0


def test_shapes_are_those_of_the_arrays():
  bucket, eos_ids = Bucket(4, 64, 16, 1, 1), (1, 2, 3, 4, 5)
  made = pack([[1], [2]], [5, 6], [SamplingParams()] * 2, eos_ids, bucket)
  assert jax.tree.map(lambda a: (a.shape, a.dtype), made) == jax.tree.map(
    lambda a: (a.shape, a.dtype), shapes(eos_ids, bucket)
  )
