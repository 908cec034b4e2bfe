"""A picture of what speculation brings: speedup over acceptance."""

import io
from pathlib import Path

from specdec_jax.plan.roofline import Prediction
from specdec_jax.training.files import write_whole

# Of Okabe and Ito's palette: they differ for every kind of colour vision.
_COLOURS = {1: "#0072B2", 2: "#009E73", 4: "#D55E00", 8: "#CC79A7"}
_BEST, _GREY = "#000000", "#595959"
_STEPS = 96


def write(path: Path, prediction: Prediction) -> None:
  """Draws the speedup for some K, and for the best K, as a PNG.

  Raises:
    OSError: it cannot be written.
  """
  # Here, since it takes a while and nothing else needs it.
  from matplotlib.backends.backend_agg import FigureCanvasAgg
  from matplotlib.figure import Figure

  figure = Figure((8, 4.5), dpi=120, layout="constrained")
  axes = figure.subplots()
  acceptance = [0.01 * i for i in range(_STEPS)]
  best = [prediction.best_length(a) for a in acceptance]
  axes.plot(
    acceptance,
    [
      prediction.speedup(a, length)
      for a, length in zip(acceptance, best, strict=True)
    ],
    color=_BEST,
    alpha=0.25,
    linewidth=6,
    solid_capstyle="round",
  )
  ends = {}
  for length, colour in _COLOURS.items():
    speedup = [prediction.speedup(a, length) for a in acceptance]
    axes.plot(acceptance, speedup, color=colour, linewidth=1.8)
    ends[length] = speedup[-1]
  # A label each, at its curve's end and clear of the one below it.
  gap, last = 0.05 * axes.get_ylim()[1], float("-inf")
  for length, end in sorted(ends.items(), key=lambda item: item[1]):
    last = max(end, last + gap)
    axes.annotate(
      f"K = {length}",
      (acceptance[-1], last),
      xytext=(6, 0),
      textcoords="offset points",
      va="center",
      color=_COLOURS[length],
      annotation_clip=False,
    )
  axes.axhline(1, color=_GREY, linewidth=0.8)
  axes.text(0, 1, "plain decoding", va="bottom", color=_GREY, size="small")
  axes.set_title(
    f"grey: the best K, {best[0]} to {best[-1]}",
    loc="left",
    fontsize="small",
    color=_GREY,
  )
  axes.set_xlabel("acceptance of a draft", size="small")
  axes.set_ylabel("speedup at best", size="small")
  axes.set_ylim(bottom=0)
  axes.spines[["top", "right"]].set_visible(False)
  axes.spines[["bottom", "left"]].set_color(_GREY)
  axes.tick_params(colors=_GREY, labelsize="small")
  axes.grid(axis="y", color="#E6E6E6", linewidth=0.8)
  axes.set_axisbelow(True)
  drawn = io.BytesIO()
  FigureCanvasAgg(figure).print_png(drawn)
  write_whole(path, drawn.getvalue())
