"""Whether a pair fits the memory of a slice, and what would make it."""

import dataclasses
from collections.abc import Mapping

from specdec_jax import buckets
from specdec_jax.models.language_model import LanguageModel
from specdec_jax.plan import abstract
from specdec_jax.plan.abstract import Pair
from specdec_jax.plan.chips import Topology
from specdec_jax.plan.passes import Program

# Of what the compiler lets a program have. Prefill, whose chunks are wider than
# a block, and what the runtime keeps are not compiled here.
RESERVED_SHARE = 0.05
_CACHES = ("target cache", "draft cache")
_WEIGHTS = ("target weights", "draft weights")


@dataclasses.dataclass(frozen=True)
class Memory:
  """Memory of one device, in bytes.

  Attributes:
    kinds: what is held, by name.
    capacity: what a program may have, less the reserve.
    reserved: the reserve.
    compiled: whether temporaries were compiled, or left out.
  """

  kinds: Mapping[str, int]
  capacity: int
  reserved: int
  compiled: bool

  @property
  def total(self) -> int:
    return sum(self.kinds.values())

  @property
  def fits(self) -> bool:
    return self.total <= self.capacity

  @property
  def excess(self) -> int:
    """By how much it does not fit; negative where there is room."""
    return self.total - self.capacity


def held(pair: Pair) -> dict[str, int]:
  """What a pair holds on each device for good, by its shapes alone."""
  caches = (
    abstract.bytes_of(pair.state.target),
    abstract.bytes_of(pair.state.draft),
  )
  return {
    "target weights": abstract.bytes_of(pair.weights.target),
    "draft weights": abstract.bytes_of(pair.weights.draft),
    "target cache": caches[0],
    "draft cache": caches[1],
    "other state": abstract.bytes_of(pair.state) - sum(caches),
  }


def embedding_bytes(model: LanguageModel) -> int:
  """Bytes that each device holds of the embedding."""
  return abstract.bytes_of(model.params["embed.weight"])


def memory_of(
  pair: Pair,
  topology: Topology,
  program: Program | None = None,
  needed: int | None = None,
) -> Memory:
  """The memory of a pair on a slice.

  Args:
    pair: the pair, on a mesh of that slice.
    topology: the slice.
    program: the generation, compiled.
    needed: what the compiler says it needs where it has refused it.
  """
  kinds = held(pair)
  if program is not None:
    # Layouts pad: what the program takes is more than the shapes say.
    kinds["padding"] = max(program.arguments - sum(kinds.values()), 0)
    kinds["temporaries"] = program.temporaries
    kinds["program"] = program.code
  elif needed is not None:
    kinds["temporaries"] = max(needed - sum(kinds.values()), 0)
  reserved = int(topology.usable_bytes * RESERVED_SHARE)
  return Memory(
    {name: size for name, size in kinds.items() if size},
    topology.usable_bytes - reserved,
    reserved,
    program is not None or needed is not None,
  )


@dataclasses.dataclass(frozen=True)
class Remedies:
  """What would make a pair fit, by arithmetic.

  Attributes:
    larger: the next slice of its kind that is large enough, and the sizes of
      its mesh; None if none is.
    context_length: the longest that fits here; 0 if none does.
    int8_total: bytes of a device with weights in int8; None where they are.
    int8_fits: whether that fits.
  """

  larger: tuple[Topology, tuple[int, int]] | None
  context_length: int
  int8_total: int | None
  int8_fits: bool


def remedies(
  memory: Memory,
  pair: Pair,
  int8: Pair | None,
  larger: tuple[Topology, tuple[int, int]] | None,
) -> Remedies:
  """What would make it fit.

  Args:
    memory: that of the pair.
    pair: the pair.
    int8: the same pair with weights in int8; None where they are.
    larger: the next slice that it fits, and its mesh.
  """
  kinds = memory.kinds
  caches = sum(kinds[name] for name in _CACHES)
  room = memory.capacity - (memory.total - caches)
  slots = buckets.slots_within(int(pair.bucket.slots * max(room, 0) / caches))
  small = None
  if int8 is not None:
    held_int8 = held(int8)
    small = memory.total - sum(
      kinds[name] - held_int8[name] for name in _WEIGHTS
    )
  return Remedies(
    larger,
    max(slots - pair.engine.spare_slots, 0),
    small,
    small is not None and small <= memory.capacity,
  )
