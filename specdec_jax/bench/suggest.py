"""Which settings to use, by what was measured."""

import dataclasses
from collections.abc import Sequence

from specdec_jax.bench.cells import OURS
from specdec_jax.bench.summary import CellSummary

# Less than this over plain decoding is not worth a second model.
_LEAST_GAIN = 0.03


@dataclasses.dataclass(frozen=True)
class Suggestion:
  """What to use for a temperature and a batch size.

  Attributes:
    best: the fastest cell; plain decoding where nothing is faster by more than
      3 %.
    plain: plain decoding.
    others: the next fastest ones, the fastest first.
    alike: those of them that are as good as the best: their median lies
      within its quartiles.
  """

  best: CellSummary
  plain: CellSummary
  others: tuple[CellSummary, ...]
  alike: tuple[CellSummary, ...]


def suggest(cells: Sequence[CellSummary]) -> Suggestion:
  """The fastest of the cells of one setting, by the median of its speedups.

  Each of them is a ratio of two runs next to each other; sums would let a
  minute in which the machine did something else decide.

  Args:
    cells: all of them, plain decoding among them.
  """
  ours = [it for it in cells if it.cell.engine == OURS]
  plain = next(it for it in ours if it.cell.is_plain)
  ranked = sorted(
    (it for it in ours if it.total.speedup is not None), key=_median
  )[::-1]
  if not ranked or _median(ranked[0]) < 1 + _LEAST_GAIN:
    return Suggestion(plain, plain, tuple(ranked[:3]), ())
  best, others = ranked[0], tuple(ranked[1:4])
  assert best.total.speedup is not None  # it was ranked
  low = best.total.speedup.low
  alike = tuple(it for it in others if _median(it) >= low)
  return Suggestion(best, plain, others, alike)


def _median(it: CellSummary) -> float:
  return it.total.speedup.median if it.total.speedup else 0.0
