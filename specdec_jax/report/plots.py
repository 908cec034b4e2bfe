"""Plots: drawn once, shown on light and dark, wide and narrow, or as a PNG."""

import base64
import contextlib
import dataclasses
import io
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from specdec_jax.report import page
from specdec_jax.report.markup import Html, tag
from specdec_jax.report.palette import DARK, LIGHT

if TYPE_CHECKING:
  from matplotlib.axes import Axes
  from matplotlib.figure import Figure

# Inches, of a column of a page and of a phone's; 96 CSS pixels each.
_WIDE, _NARROW = 9.5, 3.74
_WIDE_FONT, _NARROW_FONT = 9.5, 8.5
_PNG_DPI = 160
_PHONE = "(max-width: 36rem)"
_IS_DARK = "screen and (prefers-color-scheme: dark)"


@dataclasses.dataclass(frozen=True)
class Panel:
  """Axes of a plot.

  Attributes:
    title: above them; "" for none.
    draw: draws on them, in colours of `palette.LIGHT` alone.
    height: in inches.
  """

  title: str
  draw: Callable[["Axes"], None]
  height: float = 2.9


@dataclasses.dataclass(frozen=True)
class Plot:
  """A plot, and the same in numbers.

  Attributes:
    name: of its file.
    title: what it shows.
    note: how to read it.
    panels: side by side, or one above the other where it is narrow.
    columns: of the table.
    rows: of the table.
    stacked: whether panels are one above the other always.
  """

  name: str
  title: str
  note: str
  panels: Sequence[Panel]
  columns: tuple[str, ...]
  rows: Sequence[tuple[str, ...]]
  stacked: bool = False

  def html(self) -> Html:
    """The plot in a page: a picture for each screen, and the table."""
    pictures = {narrow: self._svg(narrow) for narrow in (False, True)}
    # The first that fits is taken.
    sources = (
      tag("source", media=media, srcset=_data(svg))
      for media, svg in (
        (f"{_IS_DARK} and {_PHONE}", _darkened(pictures[True])),
        (_PHONE, pictures[True]),
        (_IS_DARK, _darkened(pictures[False])),
      )
    )
    image = tag(
      "img",
      src=_data(pictures[False]),
      alt=f"Plot: {self.title}. The same numbers are in the table below it.",
    )
    return tag(
      "figure",
      tag("h3", self.title),
      tag("figcaption", self.note),
      tag("picture", *sources, image),
      tag(
        "details",
        tag("summary", "Numbers"),
        page.table(self.columns, self.rows, self.title),
      ),
    )

  def png(self) -> bytes:
    """The plot as a file, with its title."""
    with _style(narrow=False):
      figure = self._figure(narrow=False)
      figure.suptitle(self.title, x=0.01, ha="left", weight="bold")
      return _saved(figure, "png", dpi=_PNG_DPI, facecolor=LIGHT.ground)

  def _svg(self, narrow: bool) -> str:
    with _style(narrow):
      figure = self._figure(narrow)
      whole = _saved(figure, "svg", transparent=True, metadata={"Date": None})
    return _SPARE.sub(" ", whole.decode())

  def _figure(self, narrow: bool) -> "Figure":
    from matplotlib.figure import Figure

    heights = [panel.height for panel in self.panels]
    stacked = narrow or self.stacked
    shape = (len(heights), 1) if stacked else (1, len(heights))
    figure = Figure(
      (
        _NARROW if narrow else _WIDE,
        sum(heights) if stacked else max(heights),
      ),
      layout="constrained",
    )
    every = figure.subplots(
      *shape, squeeze=False, height_ratios=heights if stacked else None
    )
    for panel, axes in zip(self.panels, every.flat, strict=True):
      panel.draw(axes)
      if panel.title:
        axes.set_title(panel.title, loc="left", fontsize="medium")
      axes.spines[["top", "right"]].set_visible(False)
      axes.set_axisbelow(True)
      axes.tick_params(length=0)
    return figure


def look(number: int) -> dict[str, Any]:
  """Colour and marker of a curve: either tells it from the others."""
  return {
    "color": LIGHT.series[number % len(LIGHT.series)],
    "marker": _MARKERS[number % len(_MARKERS)],
    "markersize": 5.5,
    "linewidth": 1.8,
  }


# Comments, and line breaks with what indents the next line.
_SPARE = re.compile(r"<!--.*?-->|\s*\n\s*", re.DOTALL)
_MARKERS = "osD^vP"


def whole_steps(axes: "Axes", values: Sequence[int]) -> None:
  """Ticks at these values of x alone, as far as there is room."""
  every = math.ceil(len(values) / 12)
  axes.set_xticks(sorted(values)[::every])


def _saved(figure: "Figure", kind: str, **options: Any) -> bytes:
  out = io.BytesIO()
  figure.savefig(out, format=kind, **options)
  return out.getvalue()


def _data(svg: str) -> str:
  """What stands for the file in a page."""
  return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


def _darkened(svg: str) -> str:
  """The same picture in the colours for dark screens."""
  pairs = {
    light.lower(): dark.lower()
    for light, dark in zip(LIGHT.colours, DARK.colours, strict=True)
  }
  return re.sub(
    "|".join(pairs), lambda found: pairs[found[0].lower()], svg, flags=re.I
  )


@contextlib.contextmanager
def _style(narrow: bool) -> Iterator[None]:
  """Colours and sizes, the same in all plots."""
  # Here, since it takes a while and nothing else needs it.
  import matplotlib

  values: Any = {
    "font.family": "DejaVu Sans",  # it comes with matplotlib
    "font.size": _NARROW_FONT if narrow else _WIDE_FONT,
    "text.color": LIGHT.ink,
    "text.parse_math": False,  # a name with $ is a name
    "axes.labelcolor": LIGHT.muted,
    "axes.titlecolor": LIGHT.ink,
    "axes.edgecolor": LIGHT.line,
    "axes.facecolor": "none",
    "axes.grid": True,
    "grid.color": LIGHT.line,
    "grid.linewidth": 0.7,
    "xtick.color": LIGHT.line,
    "ytick.color": LIGHT.line,
    "xtick.labelcolor": LIGHT.muted,
    "ytick.labelcolor": LIGHT.muted,
    "legend.frameon": False,
    "legend.fontsize": "small",
    "hatch.linewidth": 0.8,
    "lines.solid_capstyle": "round",
    "svg.hashsalt": "specdec",  # the same file for the same numbers
  }
  with matplotlib.rc_context(values):
    yield
