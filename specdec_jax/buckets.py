"""Static shapes for ragged batches: few of them, so that few compile."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from specdec_jax.prompts import Request
from specdec_jax.sampling import Law, SamplingParams
from specdec_jax.state import Batch, Engine
from specdec_jax.stopping import StopStrings

_CHUNKS = (256, 64, 16)  # tokens of a prompt that one pass may take
_LEAST_SLOTS = 64
_MAX_WASTE = 1.5  # a chunk is too large if the passes feed more than this


@dataclasses.dataclass(frozen=True)
class Bucket:
  """The shape of a state that programs are compiled for.

  Attributes:
    batch: rows, B.
    slots: cache slots of a row, S.
    shards: over how many devices the rows are spread; divides B.
  """

  batch: int
  slots: int
  shards: int

  @classmethod
  def of(cls, rows: int, limit: int, engine: Engine, shards: int) -> "Bucket":
    """The bucket of a batch.

    Args:
      rows: how many there are at least.
      limit: the greatest length at which one ends.
      engine: what it is compiled for.
      shards: over how many devices the rows are spread.
    """
    slots = _slots(limit + engine.spare_slots)
    return cls(0, slots, shards).with_rows(rows)

  def with_rows(self, rows: int) -> "Bucket":
    """The same for so many rows, rounded up."""
    batch = _power_of_two(-(-rows // self.shards)) * self.shards
    return dataclasses.replace(self, batch=batch)

  def chunks(self, count: int) -> tuple[int, int]:
    """How to prefill so many tokens: those of one pass, and passes."""
    size = next(
      (
        size
        for size in _CHUNKS
        if self.slots % size == 0 and _up(count, size) <= _MAX_WASTE * count
      ),
      _CHUNKS[-1],
    )
    return size, _up(count, size) // size


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


@dataclasses.dataclass(frozen=True)
class Packer:
  """Makes arrays of requests, of one structure whatever the requests are.

  Attributes:
    vocab_size: V.
    eos_ids: what ends a row that does not ignore them.
    controlled: whether any request of the generation has controls.
    stops: the automaton of all stop strings; None without.
  """

  vocab_size: int
  eos_ids: tuple[int, ...]
  controlled: bool
  stops: StopStrings | None

  def pack(self, requests: Sequence[Request], bucket: Bucket) -> Batch:
    """The batch as arrays of numpy; rows that fill it up end at once."""
    spare = bucket.batch - len(requests)
    rows = [*requests, *[_NOTHING] * spare]
    params = [request.params for request in rows]
    lengths = [len(request.tokens) for request in rows]

    def column(values: Iterable[int], dtype: type) -> Any:
      return np.array([*values], dtype)

    tokens_BS: Any = np.zeros((bucket.batch, bucket.slots), np.int32)
    for index, request in enumerate(rows):
      tokens_BS[index, : lengths[index]] = request.tokens
    # A power of two: another model's EOS ids rarely mean a new program.
    width = _power_of_two(max(len(self.eos_ids), 4))
    eos_BE: Any = np.full((bucket.batch, width), -1, np.int32)
    for index, p in enumerate(params):
      if not p.ignore_eos:
        eos_BE[index, : len(self.eos_ids)] = self.eos_ids
    stop_B = None
    if self.stops is not None:
      roots = self.stops.roots
      stop_B = column((roots[tuple(p.stop)] for p in params), np.int32)
    return Batch(
      tokens_BS=tokens_BS,
      length_B=column(lengths, np.int32),
      limit_B=column((request.limit for request in rows), np.int32),
      seed_B=column((request.seed for request in rows), np.uint32),
      eos_BE=eos_BE,
      law=Law.of(params, lengths, self.vocab_size if self.controlled else None),
      stop_B=stop_B,
    )


_NOTHING = Request((0,), SamplingParams(), max_new_tokens=0)
