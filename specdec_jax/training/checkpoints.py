"""Steps of a training on disk, with orbax: the newest and the best."""

import contextlib
import dataclasses
import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import jax
from orbax.checkpoint import v1 as ocp

from specdec_jax.training.evaluate import Scores
from specdec_jax.training.state import TrainState
from specdec_jax.types import PyTree

_POLICIES = ocp.training.preservation_policies


class Checkpoints:
  """The checkpoints in a folder.

  A checkpoint appears when all of it is written: a kill or a full disk leaves
  those before it as they were.
  """

  def __init__(self, folder: Path):
    """Opens or makes the folder."""
    self._folder = folder
    self._checkpointer = ocp.training.Checkpointer(
      folder.resolve(),
      preservation_policy=_POLICIES.AnyPreservationPolicy(
        [
          _POLICIES.LatestN(1),
          _POLICIES.BestN(get_metric_fn=_score, n=1),
        ]
      ),
      cleanup_tmp_directories=True,
    )

  def __enter__(self) -> "Checkpoints":
    return self

  def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
    try:
      with _quiet():
        self._checkpointer.close()
    except Exception:  # of a save that failed: again
      if kind is None:
        raise

  @property
  def latest(self) -> int | None:
    """The newest step, None if there is none."""
    found = self._checkpointer.latest
    return None if found is None else found.step

  @property
  def best(self) -> int:
    """The step with the highest score, the later one of equals."""
    return max(
      self._checkpointer.checkpoints,
      key=lambda found: (_score(found.metrics), found.step),
    ).step

  @property
  def last_good(self) -> str:
    """Says what there is to go on from."""
    step = self.latest
    if step is None:
      return "there is no checkpoint yet"
    return f"the last good checkpoint is that of step {step}"

  def metrics(self, step: int) -> dict[str, float]:
    """What a step was saved with."""
    return next(
      dict(found.metrics)
      for found in self._checkpointer.checkpoints
      if found.step == step
    )

  def save(self, state: TrainState, metrics: Mapping[str, float]) -> None:
    """Writes a step, and removes those that are neither newest nor best.

    Raises:
      OSError: it cannot be written; those before it are still there.
    """
    step = int(state.step)
    before = self.last_good  # a save that fails hides it until the next start
    try:
      with _quiet():
        self._checkpointer.save(
          step, _stored(state), metrics=dict(metrics), force=True
        )
    except Exception as error:  # orbax wraps what the file system says
      raise OSError(
        getattr(error, "errno", None),
        f"cannot write the checkpoint of step {step}: {error}; {before}",
        os.fspath(self._folder),
      ) from error

  def load(self, step: int, like: TrainState) -> TrainState:
    """Reads a step into arrays of these shapes and places."""
    shapes = jax.tree.map(
      lambda leaf: jax.ShapeDtypeStruct(
        leaf.shape, leaf.dtype, sharding=leaf.sharding
      ),
      _stored(like),
    )
    found = self._checkpointer.load(step, shapes)
    return dataclasses.replace(like, **found)


def _stored(state: TrainState) -> dict[str, PyTree]:
  """What training changes; the rest comes with the student."""
  return {
    "step": state.step,
    "params": state.params,
    "average": state.average,
    "optimizer": state.optimizer,
  }


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
  """Keeps orbax from logging a thousand lines of what is raised anyway."""
  logger = logging.getLogger("absl")
  before, logger.disabled = logger.disabled, True
  try:
    yield
  finally:
    logger.disabled = before


def _score(metrics: Mapping[str, float]) -> float:
  return Scores(**metrics).score
