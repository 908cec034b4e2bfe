"""A training from its first step to its last, through kills in between."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from specdec_jax import sharding
from specdec_jax.loading.export import check_unused
from specdec_jax.models.language_model import LanguageModel
from specdec_jax.models.transformer import TransformerNetwork
from specdec_jax.training import finite, losses, plot, ranges
from specdec_jax.training import state as state_lib
from specdec_jax.training.checkpoints import Checkpoints
from specdec_jax.training.data import Batches, PackedTexts, TextBatches
from specdec_jax.training.evaluate import Examination, Scores
from specdec_jax.training.identity import digest, recognize
from specdec_jax.training.metrics import MetricsFile
from specdec_jax.training.notes import Notes, stop_if_broken
from specdec_jax.training.optimizer import OptimizerConfig
from specdec_jax.training.progress import Progress
from specdec_jax.training.rollout import RolloutConfig, Rollouts
from specdec_jax.training.state import Objective, TrainState
from specdec_jax.training.student import Student, network_of
from specdec_jax.types import Array

# In the folder of the model.
_FOLDER = "training"


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
  """How a student is trained.

  Attributes:
    steps: how many updates.
    batch_size: rows of a step.
    accumulate: the parts of a batch that are gone through one after another.
    loss: "cross_entropy", or one of `losses.DISTILLATION`, which needs a
      teacher.
    optimizer: how weights follow gradients.
    average_decay: of a moving average of the weights, which then is the
      result; None for none.
    dtype: of activations; the weights are kept in float32.
    evaluate_every: steps between examinations; the state is saved then too.
    seed: of the order of the data, and of what is generated.
    rollout: what is generated on the way; None for nothing.

  Raises:
    ValueError: a value lies outside its range.
  """

  steps: int
  batch_size: int = 8
  accumulate: int = 1
  loss: str = losses.CROSS_ENTROPY
  optimizer: OptimizerConfig = dataclasses.field(
    default_factory=OptimizerConfig
  )
  average_decay: float | None = None
  dtype: str = "float32"
  evaluate_every: int = 200
  seed: int = 0
  rollout: RolloutConfig | None = None

  def __post_init__(self) -> None:
    ranges.integers(
      1,
      steps=self.steps,
      batch_size=self.batch_size,
      accumulate=self.accumulate,
      evaluate_every=self.evaluate_every,
    )
    ranges.integers(0, seed=self.seed)
    known = (losses.CROSS_ENTROPY, *losses.DISTILLATION)
    if self.loss not in known:
      raise ValueError(
        f"loss: expected one of {', '.join(known)}, got {self.loss!r}"
      )
    if self.average_decay is not None:
      ranges.numbers(
        "a share in [0, 1)",
        lambda value: 0 <= value < 1,
        average_decay=self.average_decay,
      )
    if self.batch_size % self.accumulate:
      raise ValueError(
        f"accumulate: expected a divisor of the batch's {self.batch_size} "
        f"rows, got {self.accumulate}"
      )


class Training:
  """A training in a folder.

  The folder holds the best model so far, for `load` and transformers, and in
  `training/` the checkpoints, metrics.jsonl and run.json. Begun again with the
  same arguments it goes on from the newest checkpoint, and the metrics are
  those of a training that was never interrupted.
  """

  def __init__(
    self,
    folder: Path,
    student: Student,
    texts: PackedTexts,
    examination: Examination,
    config: TrainingConfig,
    teacher: LanguageModel | None = None,
  ):
    """Checks that all fits together, and compiles nothing yet.

    Args:
      folder: where everything is written: new, empty, or of a training.
      student: the model to be trained. Its weights are used up by `run`.
      texts: what it learns.
      examination: how its progress is measured.
      config: how it is trained.
      teacher: the model that it shall draft for. It imitates its law, or with
        cross-entropy is only compared with it.

    Raises:
      ValueError: what does not fit, or a folder with something else in it.
    """
    self._folder = folder / _FOLDER
    self._student = student
    self._texts = texts
    self._examination = examination
    self._config = config
    self._teacher = teacher
    self._mesh = student.model.mesh
    self._network = TransformerNetwork(
      student.config, config.dtype, student.network.platform
    )
    self._objective = Objective(
      self._network,
      None if teacher is None else network_of(teacher),
      config.loss,
    )
    self._transformation = config.optimizer.make(config.steps)
    self._schedule = config.optimizer.schedule(config.steps)
    self._check()
    self._batches = self._make_batches()
    self._run = self._folder / "run.json"
    if not (self._run.is_file() or _is_fresh(folder)):
      check_unused(folder)

  def run(self, report: Callable[[str], None] = lambda line: None) -> Scores:
    """Trains to the last step. Returns the scores of the best one.

    Args:
      report: is given lines about what goes on.

    Raises:
      ValueError: another training in the folder, or a loss or gradient that is
        no number any more.
      OSError: a checkpoint cannot be written.
    """
    self._folder.mkdir(parents=True, exist_ok=True)
    with Checkpoints(self._folder / "checkpoints") as checkpoints:
      begin = checkpoints.latest or 0
      if not begin:  # nothing to go on from: it may become any training
        self._run.unlink(missing_ok=True)
      recognize(self._run, self._description())
      state = state_lib.init_state(
        self._student.model.params,
        self._transformation,
        self._config.average_decay is not None,
        self._mesh,
      )
      if begin:
        like = state_lib.used_up(state)
        # A kill may have come between the best checkpoint and its model.
        best = checkpoints.load(checkpoints.best, like)
        self._student.write(self._folder.parent, best.result)
        state = checkpoints.load(begin, like)
        report(f"goes on from step {begin}")
      with MetricsFile(self._folder / "metrics.jsonl", begin) as metrics:
        self._loop(state, begin, checkpoints, metrics, report)
      return Scores(**checkpoints.metrics(checkpoints.best))

  def _loop(
    self,
    state: TrainState,
    begin: int,
    checkpoints: Checkpoints,
    metrics: MetricsFile,
    report: Callable[[str], None],
  ) -> None:
    """Makes the steps that are left."""
    config = self._config
    step = state_lib.make_step(
      self._objective,
      self._transformation,
      config.average_decay or 0.0,
      config.accumulate,
      state,
    )
    weights = None if self._teacher is None else self._teacher.params
    put = functools.partial(sharding.put_rows, mesh=self._mesh)
    most = config.batch_size * (self._texts.row_NT.shape[1] - 1)
    with Progress(config.steps, begin, most) as bar:
      note = Notes(
        sorted(state.params), self._schedule, checkpoints, metrics, bar
      )
      waiting: tuple[int, int, Mapping[str, Array]] | None = None
      for number in range(begin + 1, config.steps + 1):
        now = state_lib.whole(state.params, state.fixed)
        row_BT, weight_BT = self._batches(number - 1, now)
        state, measured = step(state, weights, put(row_BT), put(weight_BT))
        if waiting:  # the device is busy with the next one meanwhile
          note(*waiting)
        waiting = (number, int(weight_BT.sum()), measured)
        if number % config.evaluate_every == 0 or number == config.steps:
          note(*waiting)
          waiting = None
          scores = self._examine(state)
          stop_if_broken(number, scores, lambda: "held out", checkpoints)
          # What belongs to a step comes before the checkpoint that ends it.
          metrics.write(number, {"held_out": scores})
          plot.write(
            self._folder / "training.png", metrics.lines(), config.loss
          )
          checkpoints.save(state, scores)
          if checkpoints.best == number:
            self._student.write(self._folder.parent, state.result)
          with bar.away():
            report(f"step {number}: {_told(scores)}")
          note.restart()

  def _examine(self, state: TrainState) -> dict[str, float]:
    student = state_lib.as_model(
      self._student.model, self._network, state.result
    )
    scores = self._examination(
      self._objective, state.result, student, self._teacher
    )
    found = dataclasses.asdict(scores)
    return {name: value for name, value in found.items() if value is not None}

  def _make_batches(self) -> Batches:
    config = self._config
    texts = TextBatches(self._texts, config.batch_size, config.seed)
    if config.rollout is None:
      return texts
    assert self._teacher is not None
    return Rollouts(
      config.rollout,
      texts,
      self._student.model,
      self._network,
      self._teacher,
      self._examination.num_draft_tokens,
    )

  def _check(self) -> None:
    config, model = self._config, self._student.model
    length = self._texts.row_NT.shape[1] - 1
    if length > model.network.max_length:
      raise ValueError(
        f"sequence_length: expected at most {model.network.max_length}, what "
        f"{model.name} was made for, got {length}"
      )
    ways = sharding.sizes(self._mesh)[sharding.DATA]
    if config.batch_size % (ways * config.accumulate):
      raise ValueError(
        f"batch_size: expected a multiple of {ways * config.accumulate}, "
        f"{config.accumulate} (accumulate) parts of rows for {ways} devices "
        f"(the mesh's data axis), got {config.batch_size}"
      )
    finite.check(model)
    teacher = self._teacher
    if config.rollout is not None:
      config.rollout.check(
        config.loss, teacher is not None, config.batch_size, length
      )
    if teacher is None:
      if config.loss != losses.CROSS_ENTROPY:
        raise ValueError(
          f"loss: {config.loss} needs a teacher, got none; without one "
          f"expected {losses.CROSS_ENTROPY}"
        )
      return
    finite.check(teacher)
    if length > teacher.network.max_length:
      raise ValueError(
        f"sequence_length: expected at most {teacher.network.max_length}, "
        f"what the teacher {teacher.name} was made for, got {length}"
      )
    reason = model.tokenizer_mismatch(teacher)
    if reason:
      raise ValueError(
        f"student {model.name} and teacher {teacher.name} have different "
        f"tokenizers: {reason}; a student needs the teacher's tokenizer"
      )

  def _description(self) -> dict[str, Any]:
    """What a training is: the same description means the same metrics.

    By the names of flags. The mesh is none of it: on another one they differ
    in roundings alone.
    """
    config = dataclasses.asdict(self._config)
    optimizer = config.pop("optimizer")
    teacher, examination = self._teacher, self._examination
    return {
      **config,
      "optimizer": optimizer.pop("name"),
      **optimizer,
      "held_out_rows": examination.rows,
      "prompts": examination.prompts,
      "num_draft_tokens": examination.num_draft_tokens,
      "student": _identity(self._student.model),
      "teacher": teacher and _identity(teacher),
      "data": digest(self._texts.row_NT),
      "held_out": digest(examination.texts.row_NT),
      "sequence_length": self._texts.row_NT.shape[1] - 1,
    }


def _is_fresh(folder: Path) -> bool:
  """Whether there is nothing in it, or what a kill at the beginning left."""
  return folder.is_dir() and all(
    file.name == _FOLDER for file in folder.iterdir()
  )


def _identity(model: LanguageModel) -> str:
  """What tells models from others: shape, end of sequence and weights."""
  shape = repr((network_of(model).config, model.eos_ids)).encode()
  return digest(np.frombuffer(shape, np.uint8), *jax.tree.leaves(model.params))


def _told(scores: Mapping[str, float]) -> str:
  return ", ".join(f"{name} {value:.4f}" for name, value in scores.items())
