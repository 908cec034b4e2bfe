"""What a benchmark shows, as plots of one temperature and batch size each."""

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from specdec_jax.bench.cells import OURS
from specdec_jax.bench.summary import (
  CellSummary,
  Figures,
  Spread,
  VerifyCurve,
)
from specdec_jax.report.palette import LIGHT
from specdec_jax.report.plots import Panel, Plot, look, whole_steps
from specdec_jax.visible import sanitize

if TYPE_CHECKING:
  from matplotlib.axes import Axes

Rules = dict[str, CellSummary]
Curves = dict[str, list[CellSummary]]  # by rule, of ascending K

_DRAFTERS = {"model": "draft model", "lookup": "prompt lookup"}
_NONE = "-"
_LABEL = 18  # characters of a label


def speed(cells: Sequence[CellSummary]) -> Plot | None:
  """Speedup against K, measured and predicted."""
  drafters = _by_drafter(cells)
  if not drafters:
    return None
  panels = [
    Panel(drafter, functools.partial(_speed, curves=curves))
    for drafter, curves in drafters.items()
  ]
  rows = [
    (
      it.cell.name,
      _times(it.total.total_speedup),
      _quartiles(it.total.speedup),
      _times(it.prediction.speedup) if it.prediction else _NONE,
      f"{it.prediction.error:+.0%}" if it.prediction else _NONE,
      f"{it.total.tokens_per_pass:.2f}",
    )
    for curves in drafters.values()
    for curve in curves.values()
    for it in curve
  ]
  return Plot(
    "speed",
    "Speed against K",
    "All tokens over all seconds, in multiples of plain decoding. Filled marks "
    "and lines were measured, their bars reach from the first to the third "
    "quartile of prompts. Hollow marks on dashes are what Leviathan's formula "
    "predicts from measured acceptance and measured times of the passes.",
    panels,
    ("", "speedup", "quartiles", "predicted", "error", "τ"),
    rows,
  )


def _speed(axes: "Axes", curves: Curves) -> None:
  axes.axhline(1, color=LIGHT.muted, linewidth=0.9)
  shift, predicted = 0.06, False
  for number, (rule, curve) in enumerate(curves.items()):
    style = look(number)
    # A little apart, or the bars of several rules cover one another.
    offset = shift * (number - (len(curves) - 1) / 2)
    measured = [
      (it.cell.num_draft_tokens + offset, it.total.total_speedup)
      for it in curve
      if it.total.total_speedup is not None
    ]
    axes.plot(*zip(*measured, strict=True), label=rule, **style)
    for it in curve:
      if it.total.speedup is not None:
        axes.plot(
          [it.cell.num_draft_tokens + offset] * 2,
          [it.total.speedup.low, it.total.speedup.high],
          color=style["color"],
          linewidth=1,
        )
    found = [
      (it.cell.num_draft_tokens + offset, it.prediction.speedup)
      for it in curve
      if it.prediction
    ]
    if found:
      axes.plot(*zip(*found, strict=True), **style | _HOLLOW)
      predicted = True
  if predicted:
    axes.plot([], [], label="predicted", **look(0) | _HOLLOW | _NO_COLOUR)
  _whole_k(axes, curves)
  low, high = axes.get_ylim()
  low = min(low, 0.9)
  axes.set_ylim(low, high + 0.3 * (high - low))  # room for the legend
  axes.set_xlabel("K, drafts of a block")
  axes.set_ylabel("speedup")
  axes.legend(ncols=2, loc="upper left")


_HOLLOW = {
  "linestyle": "--",
  "linewidth": 1.1,
  "markersize": 5,
  "markerfacecolor": LIGHT.surface,
}
_NO_COLOUR = {"color": LIGHT.muted}


def acceptance(cells: Sequence[CellSummary]) -> Plot | None:
  """Acceptance by position, of the longest blocks."""
  drafters: dict[str, Rules] = {}
  for drafter, curves in _by_drafter(cells).items():
    for rule, curve in curves.items():
      if curve[-1].total.drafted_per_position:
        drafters.setdefault(drafter, {})[rule] = curve[-1]
  if not drafters:
    return None
  panels = [
    Panel(drafter, functools.partial(_acceptance, rules=rules))
    for drafter, rules in drafters.items()
  ]
  longest = [it for rules in drafters.values() for it in rules.values()]
  most = max(len(it.total.drafted_per_position) for it in longest)
  rows = [
    (
      it.cell.name,
      *(
        _NONE if share is None else f"{share:.0%}"
        for share in it.total.acceptance_per_position
      ),
      *[""] * (most - len(it.total.drafted_per_position)),
    )
    for it in longest
  ]
  return Plot(
    "acceptance",
    "Acceptance by position",
    "Share of the blocks with a draft at a position that kept it, and thereby "
    "all drafts before it. Of the largest K that was measured.",
    panels,
    ("position", *(str(place) for place in range(1, most + 1))),
    rows,
  )


def _acceptance(axes: "Axes", rules: Rules) -> None:
  for number, (rule, it) in enumerate(rules.items()):
    shares = [
      (place, share)
      for place, share in enumerate(it.total.acceptance_per_position, 1)
      if share is not None
    ]
    label = f"{rule}, K = {it.cell.num_draft_tokens}"
    axes.plot(*zip(*shares, strict=True), label=label, **look(number))
  places = max(len(it.total.drafted_per_position) for it in rules.values())
  whole_steps(axes, range(1, places + 1))
  axes.set_ylim(0, 1)
  axes.yaxis.set_major_formatter("{x:.0%}")
  axes.set_xlabel("position in the block")
  axes.set_ylabel("drafts kept")
  axes.legend()


def tasks(cells: Sequence[CellSummary]) -> Plot | None:
  """Speed by task, of the fastest cell of each drafter."""
  best = _fastest(cells)
  names = [it.task for it in best[0].tasks] if best else []
  if len(names) < 2:
    return None

  def draw(axes: "Axes") -> None:
    axes.axvline(1, color=LIGHT.muted, linewidth=0.9)
    height = 0.7 / len(best)
    for number, it in enumerate(best):
      style = look(number) | {"linestyle": "none"}
      offset = height * (number - (len(best) - 1) / 2)
      y = [place + offset for place in range(len(names))]
      spreads = [figures.speedup for figures in it.tasks]
      assert all(spreads)  # it is not plain decoding
      axes.plot(
        [_speedup(figures) for figures in it.tasks],
        y,
        label=it.cell.name,
        **style,
      )
      axes.hlines(
        y,
        [spread.low for spread in spreads if spread],
        [spread.high for spread in spreads if spread],
        color=style["color"],
        linewidth=1.4,
      )
    axes.set_yticks(range(len(names)), [_label(name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("speedup")
    axes.figure.legend(loc="outside upper left", ncols=2)

  rows = [
    (
      name or "",
      f"{it.tasks[place].prompts}",
      it.cell.name,
      _times(it.tasks[place].total_speedup),
      _quartiles(it.tasks[place].speedup),
      f"{it.tasks[place].tokens_per_second.median:.1f}",
      f"{it.tasks[place].tokens_per_pass:.2f}",
    )
    for place, name in enumerate(names)
    for it in best
  ]
  return Plot(
    "tasks",
    "Speed by task",
    "Of the fastest setting of each drafter, in multiples of plain decoding: "
    "all tokens over all seconds, and a line from the first to the third "
    "quartile of prompts.",
    [Panel("", draw, 1.1 + (0.26 + 0.1 * len(best)) * len(names))],
    ("task", "prompts", "setting", "speedup", "quartiles", "tokens/s", "τ"),
    rows,
  )


_PARTS = ("draft", "verify", "accept", "rest")
_HATCHES = ("", "//", "", "...")
_SHADES = (0, 4, 2, None)  # of the palette's series


def time(cells: Sequence[CellSummary]) -> Plot | None:
  """Where the time of a block goes, for the best rule of each drafter."""
  rules = {(it.cell.drafter, it.cell.rule) for it in _fastest(cells)}
  timed = [
    (it, _split(it))
    for it in cells
    if (it.cell.drafter, it.cell.rule) in rules or it.cell.is_plain
    if it.time is not None and it.cell.engine == OURS
  ]
  if not timed:
    return None

  def draw(axes: "Axes") -> None:
    y = list(range(len(timed)))
    left = [0.0] * len(timed)
    for part, hatch, shade in zip(_PARTS, _HATCHES, _SHADES, strict=True):
      width = [split[part] for _, split in timed]
      axes.barh(
        y,
        width,
        0.68,
        left,
        label=part,
        color=LIGHT.line if shade is None else LIGHT.series[shade],
        hatch=hatch,
        edgecolor=LIGHT.surface,
        linewidth=0.6,
      )
      left = [a + b for a, b in zip(left, width, strict=True)]
    axes.set_yticks(y, [it.cell.name for it, _ in timed])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("milliseconds of a block")
    axes.figure.legend(loc="outside upper left", ncols=4)

  rows = []
  for it, split in timed:
    assert it.time is not None
    rows.append(
      (
        it.cell.name,
        f"{1e3 * it.time.step:.2f}",
        *(f"{split[part]:.2f}" for part in _PARTS[:-1]),
        f"{it.time.overhead:+.1%}",
      )
    )
  return Plot(
    "time",
    "Where the time of a block goes",
    "Draft, verify and accept were run alone; the rest is what a block in the "
    "loop takes beyond them.",
    [Panel("", draw, 1.15 + 0.27 * len(timed))],
    ("milliseconds", "block", *_PARTS[:-1], "overhead"),
    rows,
  )


def _split(it: CellSummary) -> dict[str, float]:
  """Milliseconds of each part."""
  assert it.time is not None
  parts = (it.time.draft, it.time.verify, it.time.accept)
  rest = max(it.time.step - sum(parts), 0.0)
  values = (1e3 * part for part in (*parts, rest))
  return dict(zip(_PARTS, values, strict=True))


def verify(curves: Sequence[VerifyCurve]) -> Plot | None:
  """What a pass of the target costs against the tokens that it judges."""
  curves = [curve for curve in curves if len(curve.passes) > 1]
  if not curves:
    return None

  def draw(axes: "Axes") -> None:
    for number, curve in enumerate(curves):
      rows = f"{curve.batch_size} row{'s' * (curve.batch_size > 1)}"
      axes.plot(
        [it.tokens for it in curve.passes],
        [it.cost for it in curve.passes],
        label=f"{rows}, {curve.slots} slots",
        **look(number),
      )
    whole_steps(
      axes, sorted({it.tokens for curve in curves for it in curve.passes})
    )
    axes.set_ylim(bottom=0)
    axes.set_xlabel("T = K + 1, tokens judged in each row")
    axes.set_ylabel("v(T), in passes of one token")
    axes.legend()

  return Plot(
    "verify",
    "The cost of a pass of the target",
    "How long a pass takes that judges T tokens, run alone, in passes of one "
    "token. What is free stays at 1.",
    [Panel("", draw, 2.7)],
    ("rows", "slots", "T", "milliseconds", "v(T)"),
    [
      (
        str(curve.batch_size),
        str(curve.slots),
        str(it.tokens),
        f"{1e3 * it.seconds:.2f}",
        f"{it.cost:.2f}",
      )
      for curve in curves
      for it in curve.passes
    ],
  )


def _by_drafter(cells: Sequence[CellSummary]) -> dict[str, Curves]:
  """What was measured of this engine, by drafter and rule."""
  found: dict[str, Curves] = {}
  for it in sorted(cells, key=lambda it: it.cell.num_draft_tokens):
    if it.cell.is_plain or it.cell.engine != OURS:
      continue
    drafter = _DRAFTERS.get(it.cell.drafter, it.cell.drafter)
    found.setdefault(drafter, {}).setdefault(it.cell.rule, []).append(it)
  return dict(sorted(found.items()))


def _fastest(cells: Sequence[CellSummary]) -> list[CellSummary]:
  """The fastest cell of each drafter of each engine."""
  best: dict[tuple[str, str], CellSummary] = {}
  for it in cells:
    if it.cell.is_plain or it.total.total_speedup is None:
      continue
    key = it.cell.engine, it.cell.drafter
    if key not in best or _speedup(best[key].total) < _speedup(it.total):
      best[key] = it
  return list(best.values())


def _speedup(figures: Figures) -> float:
  return figures.total_speedup or 0.0


def _whole_k(axes: "Axes", curves: Curves) -> None:
  lengths = {it.cell.num_draft_tokens for c in curves.values() for it in c}
  whole_steps(axes, sorted(lengths))


def _label(task: str | None) -> str:
  """A name that has room at an axis."""
  name = sanitize(" ".join((task or "").split()))
  return name if len(name) <= _LABEL else f"{name[: _LABEL - 1]}…"


def _times(value: float | None) -> str:
  return _NONE if value is None else f"{value:.2f}x"


def _quartiles(spread: Spread | None) -> str:
  return _NONE if spread is None else f"{spread.low:.2f} to {spread.high:.2f}"
