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
  """The fastest of the cells of one setting, by total speedup.

  Args:
    cells: all of them, plain decoding among them.
  """
  ours = [it for it in cells if it.cell.engine == OURS]
  plain = next(it for it in ours if it.cell.is_plain)
  ranked = sorted(
    (it for it in ours if not it.cell.is_plain),
    key=lambda it: -(it.total.total_speedup or 0),
  )
  fastest = ranked[0] if ranked else plain
  if (fastest.total.total_speedup or 0) < 1 + _LEAST_GAIN:
    return Suggestion(plain, plain, tuple(ranked[:3]), ())
  bounds = fastest.total.speedup
  assert bounds is not None  # it is not plain decoding
  others = tuple(ranked[1:4])
  alike = tuple(
    it
    for it in others
    if it.total.speedup and it.total.speedup.median >= bounds.low
  )
  return Suggestion(fastest, plain, others, alike)
