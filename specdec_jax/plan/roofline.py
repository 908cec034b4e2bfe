"""How long passes take at best, and what speculation makes of that.

A pass takes as long as its traffic to HBM or its arithmetic, whichever is
longer (Williams et al., Roofline, doi:10.1145/1498765.1498785), and then its
transfers between chips, which wait for what came before.

Tokens of a block: Leviathan et al., arXiv 2211.17192, equation (1).
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from specdec_jax.plan.chips import Topology
from specdec_jax.plan.hlo import Collective

# Of a hop over a link, whatever is sent: about 1 microsecond,
# https://jax-ml.github.io/scaling-book/sharding ("A note on ICI latency").
_HOP_SECONDS = 1e-6
ACCEPTANCES = tuple(round(0.05 * i, 2) for i in range(20))
DRAFT_LENGTHS = tuple(range(1, 11))
# A full exchange in a ring is two rounds: one to add up, one to spread the sum.
_ROUNDS = {"all-reduce": 2}


@dataclasses.dataclass(frozen=True)
class Cost:
  """What a pass asks of one device.

  Attributes:
    traffic: bytes to and from HBM.
    flops: floating-point operations.
    collectives: transfers between devices.
  """

  traffic: float
  flops: float
  collectives: tuple[Collective, ...]


class PassTime(NamedTuple):
  """Seconds of a pass at best, by what takes them."""

  memory: float
  compute: float
  transfers: float

  @property
  def total(self) -> float:
    return max(self.memory, self.compute) + self.transfers

  @property
  def bound(self) -> str:
    """What takes most of it."""
    named = zip(("HBM", "compute", "interconnect"), self, strict=True)
    return max(named, key=lambda item: item[1])[0]


def transfer_seconds(collective: Collective, topology: Topology) -> float:
  """Seconds of all transfers of a kind.

  In a ring of n devices that is used in both directions, each round moves
  (n - 1) / n of the array's V bytes past every device and takes n / 2 hops
  (Patarasuk and Yuan, doi:10.1016/j.jpdc.2008.09.002; the book above):

    rounds * max(V (n - 1) / n / bandwidth, n / 2 * hop)

  with two rounds for an all-reduce and one for the others. A permutation is
  one hop of the whole array.
  """
  n = collective.devices
  if collective.kind == "collective-permute":
    one = max(collective.size / topology.link_bandwidth * 2, _HOP_SECONDS)
  else:
    one = _ROUNDS.get(collective.kind, 1) * max(
      collective.size * (n - 1) / n / topology.link_bandwidth,
      n / 2 * _HOP_SECONDS * (n > 1),
    )
  return collective.count * one


def pass_time(cost: Cost, topology: Topology) -> PassTime:
  """What a pass takes at best."""
  return PassTime(
    cost.traffic / topology.hbm_bandwidth,
    cost.flops / topology.flops,
    sum(transfer_seconds(it, topology) for it in cost.collectives),
  )


def tokens_per_block(acceptance: float, length: int) -> float:
  """Tokens that a block brings on average.

  Leviathan et al., equation (1): (1 - a^(K+1)) / (1 - a), if each draft stays
  with probability a whatever came before.

  Args:
    acceptance: a, in [0, 1].
    length: K, drafts of a block.
  """
  return sum(acceptance**i for i in range(length + 1))


def interpolate(known: Mapping[int, PassTime], tokens: int) -> PassTime:
  """A pass of T tokens, on the line between those that are known.

  Each part by itself: what it moves and what it computes are straight lines in
  T, and where one overtakes the other need not be at a T that is known.
  """
  sizes = sorted(known)
  if tokens <= sizes[0]:
    return known[sizes[0]]
  for low, high in itertools.pairwise(sizes):
    if tokens <= high:
      share = (tokens - low) / (high - low)
      parts = zip(known[low], known[high], strict=True)
      return PassTime(*(a + share * (b - a) for a, b in parts))
  return known[sizes[-1]]


@dataclasses.dataclass(frozen=True)
class Prediction:
  """What speculation brings at best.

  Attributes:
    batch: rows, B.
    draft: seconds of the draft's pass of one token a row.
    target: the target's passes of T tokens a row, by T; of 1 among them.
  """

  batch: int
  draft: float
  target: Mapping[int, PassTime]

  @property
  def plain(self) -> float:
    """Seconds of a pass of one token a row."""
    return self.target[1].total

  def block(self, length: int) -> float:
    """Seconds of a block of K drafts: K passes of the draft, and one."""
    verify = interpolate(self.target, length + 1).total
    return length * self.draft + verify

  def speedup(self, acceptance: float, length: int) -> float:
    """How many times as fast as plain decoding.

    As Leviathan et al., theorem 3.8, with the times of this pair for its cost
    coefficient, and a verifying pass that need not cost as much as a plain one.
    """
    tokens = tokens_per_block(acceptance, length)
    return tokens * self.plain / self.block(length)

  def tokens_per_second(self, acceptance: float, length: int) -> float:
    """Of all rows together; those of plain decoding with K = 0."""
    if not length:
      return self.batch / self.plain
    return (
      self.batch * tokens_per_block(acceptance, length) / self.block(length)
    )

  def best_length(
    self, acceptance: float, lengths: Sequence[int] = DRAFT_LENGTHS
  ) -> int:
    """The K of the largest speedup; the smallest of equals."""
    return max(lengths, key=lambda length: self.speedup(acceptance, length))
