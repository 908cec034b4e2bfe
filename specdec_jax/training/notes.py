"""What is noted of each step, and what ends a training."""

import functools
import math
import time
from collections.abc import Callable, Mapping

import optax

from specdec_jax.training import finite
from specdec_jax.training.checkpoints import Checkpoints
from specdec_jax.training.metrics import MetricsFile
from specdec_jax.training.progress import Progress
from specdec_jax.types import Array


class Notes:
  """Waits for a step and writes down what it was like."""

  def __init__(
    self,
    names: list[str],
    schedule: optax.Schedule,
    checkpoints: Checkpoints,
    metrics: MetricsFile,
    bar: Progress,
  ):
    """Begins with a step.

    Args:
      names: of the weights, sorted.
      schedule: of the learning rate.
      checkpoints: what there is to go on from, if a step is broken.
      metrics: where it is written.
      bar: where it is shown.
    """
    self._started = time.perf_counter()
    self._names = names
    self._schedule = schedule
    self._checkpoints = checkpoints
    self._metrics = metrics
    self._bar = bar

  def __call__(
    self, number: int, tokens: int, measured: Mapping[str, Array]
  ) -> None:
    """Waits for a step.

    Args:
      number: its number, from 1.
      tokens: how many counted.
      measured: what `state.Step` has returned with it.

    Raises:
      ValueError: a number is none any more.
      OSError: it cannot be written.
    """
    values = {key: float(measured[key]) for key in ("loss", "gradient_norm")}
    where = functools.partial(
      finite.where, self._names, measured["weights"], measured["gradients"]
    )
    stop_if_broken(number, values, where, self._checkpoints)
    now = time.perf_counter()
    self._metrics.write(
      number,
      {
        **values,
        "tokens": tokens,
        "learning_rate": float(self._schedule(number - 1)),
        "seconds": round(now - self._started, 3),
      },
    )
    self._bar.update(number, tokens, values["loss"])
    self._started = now

  def restart(self) -> None:
    """A step begins now, after something that is none."""
    self._started = time.perf_counter()


def stop_if_broken(
  step: int,
  values: Mapping[str, float],
  where: Callable[[], str],
  checkpoints: Checkpoints,
) -> None:
  """Ends a training whose numbers are none any more.

  Raises:
    ValueError: it says which and where, and what there is to go on from.
  """
  for name, value in values.items():
    if not math.isfinite(value):
      raise ValueError(
        f"step {step}: {name} is {value} ({where()}); {checkpoints.last_good}. "
        "Train in another folder with a lower learning rate, or look at the "
        "data"
      )
