"""TPU chips and the slices that they come in: public data.

The figures are those of the vendor's pages, one page a chip:

* https://docs.cloud.google.com/tpu/docs/v5e
* https://docs.cloud.google.com/tpu/docs/v5p
* https://docs.cloud.google.com/tpu/docs/v6e
* https://docs.cloud.google.com/tpu/docs/tpu7x

The pages give the interconnect as bytes per second of a chip, both directions
of all its links together. One link is that over the number of links.
"""

import dataclasses
import importlib.util
import math
import os
import re
from collections.abc import Iterator
from typing import Any

_GIB = 2**30
_FLAT = ("1x1", "2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")
_CUBIC = ("2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4", "4x4x8", "4x8x8")
_INSTALL = "pip install 'specdec_jax[aot]'"
AUTO = "auto"


@dataclasses.dataclass(frozen=True)
class Chip:
  """A kind of TPU chip.

  Attributes:
    name: what JAX calls it in the name of a topology.
    hbm_bytes: memory of a chip.
    usable_bytes: what the compiler lets a program have of it.
    hbm_bandwidth: bytes per second between a chip and its memory.
    bf16_flops: peak floating-point operations per second in bfloat16.
    link_bandwidth: bytes per second of one link to a neighbour, in both
      directions together.
    slices: shapes that can be had, from small to large.
    devices: how many devices of JAX a chip is; they share its figures evenly.
  """

  name: str
  hbm_bytes: int
  usable_bytes: int
  hbm_bandwidth: float
  bf16_flops: float
  link_bandwidth: float
  slices: tuple[str, ...]
  devices: int = 1


# usable_bytes: the capacity that libtpu 0.0.52 names when a program exceeds it.
CHIPS = (
  Chip(
    "v5e",
    hbm_bytes=16 * _GIB,
    usable_bytes=int(15.75 * _GIB),
    hbm_bandwidth=819e9,
    bf16_flops=197e12,
    link_bandwidth=400e9 / 4,
    slices=_FLAT,
  ),
  Chip(
    "v6e",
    hbm_bytes=32 * _GIB,
    usable_bytes=int(31.24 * _GIB),
    hbm_bandwidth=1638e9,
    bf16_flops=918e12,
    link_bandwidth=800e9 / 4,
    slices=_FLAT,
  ),
  Chip(
    "v5p",
    hbm_bytes=95 * _GIB,
    usable_bytes=int(95.73 * _GIB),
    hbm_bandwidth=2765e9,
    bf16_flops=459e12,
    link_bandwidth=1200e9 / 6,
    slices=_CUBIC,
  ),
  Chip(
    "tpu7x",
    hbm_bytes=192 * _GIB,
    usable_bytes=int(2 * 94.74 * _GIB),
    hbm_bandwidth=7380e9,
    bf16_flops=2307e12,
    link_bandwidth=1200e9 / 6,
    slices=_CUBIC,
    devices=2,  # two chiplets, each with its half of the memory
  ),
)


@dataclasses.dataclass(frozen=True)
class Topology:
  """A slice: chips of one kind, and how they are arranged."""

  chip: Chip
  shape: str

  @property
  def name(self) -> str:
    return f"{self.chip.name}:{self.shape}"

  @property
  def num_chips(self) -> int:
    return math.prod(map(int, self.shape.split("x")))

  @property
  def num_devices(self) -> int:
    return self.num_chips * self.chip.devices

  @property
  def usable_bytes(self) -> int:
    """Memory of one device that a program may have."""
    return self.chip.usable_bytes // self.chip.devices

  @property
  def hbm_bandwidth(self) -> float:
    """Bytes per second of one device."""
    return self.chip.hbm_bandwidth / self.chip.devices

  @property
  def flops(self) -> float:
    """Peak operations per second of one device.

    In bfloat16, and in float32 too: by default XLA multiplies float32 in one
    pass of bfloat16 on a TPU.
    """
    return self.chip.bf16_flops / self.chip.devices

  @property
  def link_bandwidth(self) -> float:
    """Bytes per second between neighbours, both directions together."""
    return self.chip.link_bandwidth

  def larger(self) -> "Iterator[Topology]":
    """The slices of this kind that have more chips."""
    for shape in self.chip.slices:
      other = Topology(self.chip, shape)
      if other.num_chips > self.num_chips:
        yield other

  def describe(self) -> list[Any]:
    """The devices of such a slice, without having one.

    Raises:
      ValueError: the compiler is not installed, or does not know the slice.
    """
    if importlib.util.find_spec("libtpu") is None:
      raise ValueError(
        f"to compile for {self.name} libtpu is needed, which is not "
        f"installed: {_INSTALL}"
      )
    # Or else it asks the cloud what machine this is, and waits for that; and
    # locks the TPU that may be here, which is not what is compiled for.
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    from jax.experimental import topologies

    try:
      found = topologies.get_topology_desc(
        platform="tpu", topology_name=self.name
      )
    except Exception as error:  # what libtpu raises is no class of its own
      raise ValueError(f"the compiler knows no {self.name}: {error}") from error
    return list(found.devices)


def parse(text: str) -> Topology | None:
  """Reads a name like "v5e:2x4"; None is "auto".

  Raises:
    ValueError: there is no such slice; it names those that there are.
  """
  if text == AUTO:
    return None
  match = re.fullmatch(r"([a-z0-9]+):([0-9x]+)", text, re.ASCII)
  for chip in CHIPS:
    if match and match[1] == chip.name:
      if match[2] in chip.slices:
        return Topology(chip, match[2])
      raise ValueError(
        f"{text}: {chip.name} has no slice {match[2]}; it has "
        f"{', '.join(chip.slices)}"
      )
  kinds = "; ".join(f"{c.name}:{', '.join(c.slices)}" for c in CHIPS)
  raise ValueError(f"expected {AUTO} or CHIP:SHAPE, got {text!r}; {kinds}")


def by_size() -> list[Topology]:
  """All slices, those of less memory first, and of fewer chips among equals."""
  every = [Topology(chip, shape) for chip in CHIPS for shape in chip.slices]
  return sorted(
    every, key=lambda t: (t.num_chips * t.chip.hbm_bytes, t.num_chips)
  )
