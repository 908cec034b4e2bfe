"""Draws loop.svg, one turn of the loop, for docs/how_it_works.md.

python docs/figures/loop.py
"""

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

FILE = Path(__file__).with_suffix(".svg")

# Okabe and Ito's colours, which colour-blind readers can tell apart; what they
# mean is said by the frames and by words as well.
_DRAFT, _TARGET = "#E69F00", "#0072B2"
_PALE = {_DRAFT: "#FBEBCB", _TARGET: "#CFE4F2", "black": "#F2F2F2"}
_ROWS = {"text": 6.4, "draft": 4.9, "verify": 3.4, "accept": 1.9, "commit": 0.4}
# Text stays text, and the same input gives the same file.
_STYLE = {
  "svg.fonttype": "none",
  "svg.hashsalt": "loop",
  "font.sans-serif": ["DejaVu Sans"],  # what comes after is up to the browser
  "font.monospace": ["DejaVu Sans Mono"],
  "font.size": 11,
}


def _token(axes: Axes, x: float, y: float, text: str, kind: str) -> None:
  """A token in a box: "draft", "rejected", "target" or "text"."""
  color = {"draft": _DRAFT, "target": _TARGET}.get(kind, "black")
  axes.add_patch(
    FancyBboxPatch(
      (x - 0.5, y - 0.3),
      1.0,
      0.6,
      boxstyle="round,pad=0.02,rounding_size=0.12",
      facecolor="white" if kind == "rejected" else _PALE[color],
      edgecolor=_DRAFT if kind == "rejected" else color,
      linestyle="--" if kind == "rejected" else "-",
      linewidth=1.4,
    )
  )
  gone = kind == "rejected"
  ink = "#777777" if gone else "black"
  axes.text(x, y, text, ha="center", va="center", family="monospace", color=ink)
  if gone:
    axes.plot([x - 0.38, x + 0.38], [y - 0.2, y + 0.2], color="black", lw=1.2)


def _x(column: int) -> float:
  """Where a column is; the newest token of the text is in column 0."""
  return 4.4 + 1.25 * column


def _arrow(
  axes: Axes, begin: tuple[float, float], end: tuple[float, float]
) -> None:
  axes.add_patch(
    FancyArrowPatch(
      begin, end, arrowstyle="-|>", mutation_scale=11, color="#666666"
    )
  )


def _labels(axes: Axes) -> None:
  """What the rows are, in words."""
  for name, what in (
    ("text", "what there is so far"),
    ("draft", "K passes of the small model,\neach token drawn from its law q"),
    ("verify", "one pass of the target over all of\nthem: K + 1 laws p"),
    ("accept", "the rule keeps a prefix and draws\nthe token after it"),
    (
      "commit",
      "rejected tokens lie behind the\nend of the text; nothing moves",
    ),
  ):
    y = _ROWS[name]
    axes.text(-2.3, y + 0.12, name, weight="bold", va="bottom")
    axes.text(-2.3, y + 0.04, what, fontsize=9, va="top", color="#333333")


def _loop(axes: Axes) -> None:
  """The frame of what runs again and again, and the way back."""
  top, bottom = _ROWS["draft"] + 0.75, _ROWS["commit"] - 0.75
  axes.add_patch(
    FancyBboxPatch(
      (-2.6, bottom),
      14.7,
      top - bottom,
      boxstyle="round,pad=0,rounding_size=0.2",
      facecolor="none",
      edgecolor="#666666",
      linestyle=":",
    )
  )
  axes.text(
    4.75,
    bottom - 0.12,
    "lax.while_loop, one program on the device; the host reads nothing",
    ha="center",
    va="top",
    fontsize=9.5,
    color="#333333",
  )
  right, y, end = 11.7, _ROWS["commit"], _ROWS["draft"]
  axes.plot(
    [_x(3) + 0.6, right, right], [y, y, end], color="#666666", linewidth=1
  )
  _arrow(axes, (right + 0.03, end), (_x(4) + 0.55, end))
  axes.text(
    right - 0.12, (y + end) / 2, "again", rotation=90, ha="right", va="center"
  )


def draw(file: Path = FILE) -> None:
  """Writes the figure."""
  with plt.rc_context(_STYLE):
    figure, axes = plt.subplots(figsize=(9.6, 5.4), layout="constrained")
    axes.set_xlim(-2.7, 12.2)
    axes.set_ylim(-0.85, 6.9)
    axes.axis("off")
    _labels(axes)
    _loop(axes)
    words, drafts = ("def", "add", "("), ("a", ",", "c", ")")
    for column, word in enumerate(words, -2):
      _token(axes, _x(column), _ROWS["text"], word, "text")
      _token(axes, _x(column), _ROWS["commit"], word, "text")
    for column, word in enumerate(drafts, 1):
      kept = column <= 2
      x = _x(column)
      _token(axes, x, _ROWS["draft"], word, "draft")
      _token(axes, x, _ROWS["accept"], word, "draft" if kept else "rejected")
      if kept:
        _token(axes, x, _ROWS["commit"], word, "draft")
      for above, below in (("draft", "verify"), ("verify", "accept")):
        _arrow(axes, (x, _ROWS[above] - 0.34), (x, _ROWS[below] + 0.34))
    for column, law in enumerate("₁₂₃₄₅", 1):
      _token(axes, _x(column), _ROWS["verify"], f"p{law}", "target")
    _token(axes, _x(3), _ROWS["commit"], "b", "target")
    x, y = _x(3), _ROWS["accept"]
    _arrow(axes, (x, y - 0.34), (x, _ROWS["commit"] + 0.34))
    axes.text(
      x + 0.15, y - 0.76, "drawn from (p₃ - q₃)₊", fontsize=9, va="center"
    )
    figure.savefig(file, metadata={"Date": None}, facecolor="white")
    plt.close(figure)


if __name__ == "__main__":
  draw()
