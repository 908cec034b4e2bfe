"""Runs the cells of a benchmark on its prompts, all in turn.

Within a round each cell runs once on the same prompts, plain decoding among
them, and each round begins with another cell: what makes the machine slower
for a while meets all of them, and a steady drift cancels.
"""

import collections
import dataclasses
from collections.abc import Callable, Iterator, Sequence

from specdec_jax.bench import workload
from specdec_jax.bench.cells import OURS, Cell
from specdec_jax.bench.identity import first_difference, tie
from specdec_jax.bench.passes import Timer
from specdec_jax.bench.peak import Peak
from specdec_jax.bench.records import Difference, PassTimes, RunRecord
from specdec_jax.bench.ways import Limits, Ours, Pair, Run, Way
from specdec_jax.bench.workload import Item

_PASS_UNITS = 7  # of a setting: so often are its passes timed
_SEEDS = 2**32


@dataclasses.dataclass(frozen=True)
class Prompt:
  """A prompt as the target reads it.

  Attributes:
    item: where it comes from.
    tokens: its ids.
  """

  item: Item
  tokens: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Unit:
  """What is measured and written down in one piece.

  Attributes:
    number: counted from 0.
    cells: of one setting, plain decoding first.
    places: of the prompts, which run side by side.
  """

  number: int
  cells: tuple[Cell, ...]
  places: tuple[int, ...]


def units(cells: Sequence[Cell], items: Sequence[Item]) -> list[Unit]:
  """All of a benchmark, in their order."""
  settings: dict[tuple[float, int], list[Cell]] = collections.defaultdict(list)
  for cell in cells:
    settings[cell.temperature, cell.batch_size].append(cell)
  found: list[Unit] = []
  for (_, batch_size), some in settings.items():
    for places in workload.batches(items, batch_size):
      found.append(Unit(len(found), tuple(some), tuple(places)))
  return found


class Meter:
  """Measures units."""

  def __init__(
    self,
    pair: Pair,
    prompts: Sequence[Prompt],
    *,
    limits: Limits,
    rounds: int,
    seed: int,
    peer: Callable[[Cell], Way] | None = None,
    status: Callable[[str], None] = lambda _: None,
  ):
    """Nothing is compiled yet.

    Args:
      pair: the models.
      prompts: all of the workload.
      limits: where texts end.
      rounds: how often a cell runs on a prompt.
      seed: of the first prompt in the first round.
      peer: makes the way of a cell of another engine.
      status: shows what goes on.
    """
    self._pair, self._prompts, self._peer = pair, prompts, peer
    self._limits, self._rounds = limits, rounds
    self._seed, self._status = seed, status
    self._peak = Peak()
    self._ways: dict[Cell, Way] = {}

  def measure(self, unit: Unit, timed_passes: bool) -> list[RunRecord]:
    """Runs the cells of a unit.

    Args:
      unit: which.
      timed_passes: whether the parts of their blocks are timed too.
    """
    timer = self._timer(unit) if timed_passes else None
    records: list[RunRecord] = []
    for number in range(self._rounds):
      plain: dict[str, list[list[int]]] = {}
      runs: dict[Cell, tuple[Run, int | None]] = {}
      times: dict[Cell, PassTimes] = {}
      for cell in _turned(unit.cells, unit.number * self._rounds + number):
        self._status(f"{cell.name}, round {number + 1}")
        runs[cell] = self._run(cell, unit, number)
        if cell.is_plain:
          plain[cell.engine] = runs[cell][0].tokens
        if timer is not None and cell.engine == OURS:
          times[cell] = timer.time(cell)
      for cell in unit.cells:
        record = self._record(cell, unit, number, *runs[cell], plain)
        records.append(dataclasses.replace(record, passes=times.get(cell)))
    return records

  def _timer(self, unit: Unit) -> Timer:
    self._status("compiling the parts of a block")
    return Timer(
      self._pair,
      [cell for cell in unit.cells if cell.engine == OURS],
      [self._prompts[place].tokens for place in unit.places],
      self._limits.max_new_tokens,
    )

  def _run(self, cell: Cell, unit: Unit, number: int) -> tuple[Run, int | None]:
    way = self._ways.get(cell)
    if way is None:
      if cell.engine == OURS:
        way = Ours(self._pair, cell, self._limits)
      else:
        assert self._peer is not None  # cells of peers come with one
        way = self._peer(cell)
      self._ways[cell] = way
    begin = self._seed + number * len(self._prompts)
    self._peak.start()
    run = way.run(
      [self._prompts[place].tokens for place in unit.places],
      [(begin + place) % _SEEDS for place in unit.places],
    )
    return run, self._peak.read()

  def _record(
    self,
    cell: Cell,
    unit: Unit,
    number: int,
    run: Run,
    peak_bytes: int | None,
    plain: dict[str, list[list[int]]],
  ) -> RunRecord:
    prompts = [self._prompts[place] for place in unit.places]
    differences: list[Difference] = []
    # Above temperature 0 other draws are as good.
    is_compared = cell.temperature == 0 and not cell.is_plain
    if is_compared:
      for prompt, ours, theirs in zip(
        prompts, run.tokens, plain[cell.engine], strict=True
      ):
        differences += self._difference(prompt, ours, theirs)
    return RunRecord(
      cell=cell,
      task=prompts[0].item.task,
      prompts=tuple(prompt.item.name for prompt in prompts),
      round=number,
      slots=run.slots,
      new_tokens=sum(map(len, run.tokens)),
      row_passes=run.row_passes,
      drafted=run.drafted,
      accepted=run.accepted,
      prefill=run.prefill,
      first_token=run.first_token,
      decode=run.decode,
      decode_tokens=run.decode_tokens,
      steps=run.steps,
      compile=run.compile,
      peak_bytes=peak_bytes,
      finish_reasons=run.finish_reasons,
      compared=len(prompts) if is_compared else 0,
      differences=tuple(differences),
      passes=None,
    )

  def _difference(
    self, prompt: Prompt, ours: Sequence[int], theirs: Sequence[int]
  ) -> Iterator[Difference]:
    place = first_difference(ours, theirs)
    if place is None:
      if len(ours) == len(theirs):
        return
      place = min(len(ours), len(theirs))
    context = [*prompt.tokens, *ours[:place]]
    tokens = [*ours[place : place + 1], *theirs[place : place + 1]]
    gap, near = tie(self._pair.target, context, tokens)
    yield Difference(prompt.item.name, place, gap, near)


def _turned(cells: Sequence[Cell], turn: int) -> list[Cell]:
  """The cells from another one on.

  Over as many turns as there are cells, each runs as long before another as
  after it.
  """
  begin = turn % len(cells)
  return [*cells[begin:], *cells[:begin]]


def with_passes(
  pair: Pair,
  found: Sequence[Unit],
  prompts: Sequence[Prompt],
  max_new_tokens: int,
) -> set[int]:
  """The numbers of the units whose passes are timed: some of each setting.

  Of each it is those whose caches have the size that most of its units have.
  """
  settings: dict[tuple[Cell, ...], dict[int, list[int]]] = {}
  for unit in found:
    limit = max(len(prompts[place].tokens) for place in unit.places)
    slots = pair.bucket(unit.cells[0], limit + max_new_tokens).slots
    sizes = settings.setdefault(unit.cells, {})
    sizes.setdefault(slots, []).append(unit.number)
  return {
    number
    for sizes in settings.values()
    for number in max(sizes.values(), key=len)[:_PASS_UNITS]
  }
