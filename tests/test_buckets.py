"""Buckets are few, and large enough."""

import dataclasses

import jax
import pytest

from specdec_jax.buckets import Bucket, Packer, batch_within, slots_within
from specdec_jax.prompts import Request
from specdec_jax.sampling import SamplingParams
from specdec_jax.state import Engine
from specdec_jax.stopping import StopStrings


@dataclasses.dataclass(frozen=True)
class _Drafter:
  num_draft_tokens: int


def _bucket(limit, rows=1, draft_tokens=4, shards=1) -> Bucket:
  engine = Engine(None, _Drafter(draft_tokens), None)
  return Bucket.of(rows, limit, engine, shards)


def test_every_pass_fits():
  for limit in range(2, 1100):
    for length in {1, 2, 17, limit // 2, limit - 1} - {0}:
      bucket = _bucket(limit)
      chunk, count = bucket.chunks(min(length, limit - 1) - 1)
      assert bucket.slots >= limit + 4
      assert bucket.slots % chunk == 0
      covered = chunk * count
      assert min(length, limit - 1) - 1 <= covered <= bucket.slots


def test_a_cache_is_never_twice_too_large():
  for limit in range(61, 5000):
    assert _bucket(limit).slots <= 1.5 * (limit + 4) + 1


def test_few_programs():
  found = {
    (bucket.slots, bucket.chunks(max(limit // 2, 1) - 1)[0])
    for limit in range(2, 4096)
    for bucket in [_bucket(limit)]
  }
  assert len(found) <= 24


@pytest.mark.parametrize(
  "rows, shards, batch", [(1, 1, 1), (3, 1, 4), (8, 1, 8), (3, 2, 4), (5, 4, 8)]
)
def test_batches_are_powers_of_two_for_each_device(rows, shards, batch):
  assert _bucket(9, rows, shards=shards).batch == batch


def test_what_fits_below_a_bound_is_a_bucket():
  for count in range(1, 300):
    rows = batch_within(count, 1)
    assert _bucket(2, rows).batch == rows <= count < 2 * rows
  assert [batch_within(n, 4) for n in (3, 4, 7, 8)] == [0, 4, 4, 8]
  for count in range(64, 3000):
    slots = slots_within(count)
    assert _bucket(slots - 4).slots == slots <= count <= 1.5 * slots
  assert slots_within(63) == 0


def _pack(requests, controlled=False, stops=None):
  packer = Packer(9, (7, 8), controlled, stops)
  return packer.pack(requests, Bucket(4, 64, 1))


def test_rows_that_fill_up_a_batch_end_at_once():
  made = _pack([Request((1, 2), SamplingParams(), 3, seed=5)])
  assert made.tokens_BS[0, :2].tolist() == [1, 2]
  assert made.length_B.tolist() == [2, 1, 1, 1]
  assert made.limit_B.tolist() == [5, 1, 1, 1]
  assert made.seed_B.tolist() == [5, 0, 0, 0]


def test_an_ignored_eos_ends_nothing():
  params = [SamplingParams(), SamplingParams(ignore_eos=True)]
  made = _pack([Request((1,), p, 3) for p in params])
  assert made.eos_BE[:2].tolist() == [[7, 8, -1, -1], [-1] * 4]


def test_the_structure_depends_on_the_generation_not_on_the_batch():
  stops = StopStrings.of(((), ("a",)), (b"a",) * 9)
  plain = SamplingParams()
  rich = SamplingParams(stop="a", logit_bias={3: 1.0}, min_new_tokens=2)
  structures = {
    jax.tree.structure(_pack([Request((1,), p, 3)], True, stops))
    for p in (plain, rich)
  }
  assert len(structures) == 1
