"""A picture of a training: loss, held-out acceptance and τ over the steps."""

import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from specdec_jax.training import losses
from specdec_jax.training.files import write_whole

if TYPE_CHECKING:
  from matplotlib.axes import Axes

# Of Okabe and Ito's palette: they differ for every kind of colour vision. What
# is held out has markers too.
_TRAINED, _HELD_OUT, _GREY = "#0072B2", "#D55E00", "#595959"
# A smoothed value is the mean over this part of all steps. The axis is cut
# above what follows the first of these parts, since a loss falls from far up.
_PARTS = 25

# What is measured on held-out texts and has axes of its own, by its name in
# `Scores`.
_SCORES = {
  "loss": "cross-entropy\nin nats per token",
  "acceptance": "acceptance\nat temperature 1",
  "tokens_per_target_pass": "τ, greedy\nin tokens per pass",
}

Curve = Mapping[int, float]  # by step


def write(path: Path, lines: Iterable[Mapping[str, Any]], loss: str) -> None:
  """Draws what metrics.jsonl tells, as a PNG.

  Args:
    path: of the picture. A kill leaves the one before it.
    lines: those of the file, at least one of them of held-out texts.
    loss: the name of what is made small.

  Raises:
    OSError: it cannot be written.
  """
  # Here, since it takes a while and nothing else needs it.
  from matplotlib.backends.backend_agg import FigureCanvasAgg
  from matplotlib.figure import Figure
  from matplotlib.ticker import MaxNLocator

  trained: dict[int, float] = {}
  held_out: dict[str, dict[int, float]] = {name: {} for name in _SCORES}
  for line in lines:
    if "held_out" not in line:
      trained[line["step"]] = line["loss"]
      continue
    for name in held_out.keys() & line["held_out"].keys():
      held_out[name][line["step"]] = line["held_out"][name]
  together = loss == losses.CROSS_ENTROPY  # the same quantity: the same axes
  names = [
    name
    for name, curve in held_out.items()
    if curve and not (together and name == "loss")
  ]
  figure = Figure((8, 3 + 1.6 * len(names)), dpi=120, layout="constrained")
  first, *others = figure.subplots(
    1 + len(names),
    sharex=True,
    squeeze=False,
    height_ratios=[2.0] + [1.0] * len(names),
  )[:, 0]
  curves = [_draw_trained(first, trained)]
  if together:
    curves.append(held_out["loss"])
    _draw_held_out(first, held_out["loss"], lowest=True)
  begin = max(trained) / _PARTS
  top = max(y for curve in curves for x, y in curve.items() if x > begin)
  first.set_ylim(top=1.05 * top)
  unit = "" if loss == "total_variation" else "\nin nats per token"
  label = loss.replace("_", "-" if together else " ").replace("kl", "KL")
  first.set_ylabel(label + unit)
  first.legend(frameon=False, fontsize="small", loc="upper right")
  for axes, name in zip(others, names, strict=True):
    _draw_held_out(axes, held_out[name], lowest=name == "loss")
    axes.set_ylabel(_SCORES[name])
  for axes in figure.axes:
    _tidy(axes)
  last = figure.axes[-1]
  last.set_xlabel("step", size="small")
  last.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
  figure.align_ylabels()
  picture = io.BytesIO()
  FigureCanvasAgg(figure).print_png(picture)
  write_whole(path, picture.getvalue())


def _draw_trained(axes: "Axes", trained: Curve) -> Curve:
  """The loss of each step, and if there are enough of them smoothed."""
  step, loss = np.array(list(trained)), np.array(list(trained.values()))
  width = len(loss) // _PARTS
  if width < 2:
    axes.plot(step, loss, color=_TRAINED, marker=".", label="trained on")
    return trained
  axes.plot(step, loss, color=_TRAINED, alpha=0.25, linewidth=0.8)
  weight = np.ones(width)
  smoothed = np.convolve(loss, weight, "same")
  smoothed /= np.convolve(np.ones(len(loss)), weight, "same")
  label = f"trained on, mean of {width} steps"
  axes.plot(step, smoothed, color=_TRAINED, linewidth=1.8, label=label)
  return dict(zip(step.tolist(), smoothed.tolist(), strict=True))


def _draw_held_out(axes: "Axes", value: Curve, lowest: bool) -> None:
  """What was measured on held-out texts, and its best in words."""
  axes.plot(
    list(value),
    list(value.values()),
    color=_HELD_OUT,
    linewidth=1.2,
    marker="o",
    markersize=4,
    label="held out",
  )
  best = (min if lowest else max)(value, key=lambda step: value[step])
  axes.set_title(
    f"best held out: {value[best]:.4g} at step {best}",
    loc="right",
    fontsize="small",
    color=_HELD_OUT,
  )


def _tidy(axes: "Axes") -> None:
  """Leaves out what tells nothing."""
  axes.spines[["top", "right"]].set_visible(False)
  axes.spines[["bottom", "left"]].set_color(_GREY)
  axes.tick_params(colors=_GREY, labelsize="small")
  axes.yaxis.label.set_fontsize("small")
  axes.grid(axis="y", color="#E6E6E6", linewidth=0.8)
  axes.set_axisbelow(True)
