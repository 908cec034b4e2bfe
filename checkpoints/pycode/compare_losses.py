"""Compares the losses that a draft can be trained with, for the model card.

    python checkpoints/pycode/compare_losses.py --work=FOLDER

FOLDER is that of recipe.sh, with the corpus and the trained target. For each
loss: one training for each learning rate; for cross-entropy and for the loss
that the target accepts most from, two more seeds at the better rate. The same
data, steps and architecture for all; what is measured is what `specdec train`
measures, on packages that nobody was trained on. About an hour on two cores.
Killed? The same command goes on. Writes losses.md and losses.jsonl into
FOLDER/losses.
"""

import dataclasses
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from absl import app, flags

from specdec_jax.loading import loader
from specdec_jax.models.language_model import LanguageModel
from specdec_jax.sharding import make_mesh
from specdec_jax.training import data, losses, student
from specdec_jax.training.evaluate import Examination, Scores
from specdec_jax.training.optimizer import OptimizerConfig
from specdec_jax.training.trainer import Training, TrainingConfig

_WORK = flags.DEFINE_string("work", None, "The recipe's folder.", required=True)
_STEPS = flags.DEFINE_integer("steps", 150, "Of each training.")

_HERE = Path(__file__).parent
_RATES = (5e-3, 1.5e-2)
_SEEDS = (0, 1, 2)
_BATCH_SIZE = 8
_SEQUENCE_LENGTH = 256
# Scores by learning rate and seed, of each loss.
Found = Mapping[str, dict[tuple[float, int], Scores]]
# Of the corpus's documents one in so many: enough for all steps.
_EVERY = 32


@dataclasses.dataclass(frozen=True)
class Study:
  """What is the same in all trainings."""

  work: Path
  steps: int
  teacher: LanguageModel
  texts: data.PackedTexts
  examination: Examination

  @classmethod
  def of(cls, work: Path, steps: int) -> "Study":
    """Loads the teacher and reads the corpus."""
    teacher = loader.load(work / "target", dtype="float32", mesh=make_mesh())
    corpus = work / "corpus"
    train = data.read_texts([str(corpus / "train.jsonl")])[::_EVERY]
    unseen = data.read_texts([str(corpus / "heldout.jsonl")])
    packed = [
      data.PackedTexts.of(
        texts, teacher.tokenizer, teacher.eos_ids[0], _SEQUENCE_LENGTH, name
      )
      for texts, name in ((train, "data"), (unseen, "held-out data"))
    ]
    examination = Examination(
      packed[1], rows=64, batch_size=_BATCH_SIZE, prompts=32
    )
    return cls(work, steps, teacher, packed[0], examination)

  def train(self, loss: str, rate: float, seed: int) -> Scores:
    """One training, or what it came to if it was done before."""
    folder = self.work / "losses" / f"{loss}-{rate:g}-{seed}"
    pupil = student.fresh(
      _HERE / "draft.json", _HERE / "tokenizer", seed, self.teacher.mesh
    )
    config = TrainingConfig(
      steps=self.steps,
      batch_size=_BATCH_SIZE,
      loss=loss,
      optimizer=OptimizerConfig("muon", rate, warmup_steps=self.steps // 10),
      evaluate_every=self.steps,
      seed=seed,
    )
    return Training(
      folder, pupil, self.texts, self.examination, config, self.teacher
    ).run()


def main(argv: Sequence[str]) -> None:
  """Makes all trainings and the table."""
  if len(argv) > 1:
    raise app.UsageError(f"unexpected argument {argv[1]}")
  study = Study.of(Path(_WORK.value), _STEPS.value)
  found = {
    loss: {(rate, 0): study.train(loss, rate, 0) for rate in _RATES}
    for loss in (losses.CROSS_ENTROPY, *losses.DISTILLATION)
  }
  best = {
    loss: max(_RATES, key=lambda rate: of[rate, 0].score)
    for loss, of in found.items()
  }
  first = max(
    losses.DISTILLATION, key=lambda loss: found[loss][best[loss], 0].score
  )
  for loss in (losses.CROSS_ENTROPY, first):
    for seed in _SEEDS[1:]:
      found[loss][best[loss], seed] = study.train(loss, best[loss], seed)
  _write(study.work / "losses", found, best)


def _write(folder: Path, found: Found, best: Mapping[str, float]) -> None:
  """Writes all scores, and the table of each loss at its better rate."""
  records, rows = [], []
  for loss, of in found.items():
    for (rate, seed), scores in of.items():
      # The scores have a "loss" too, the cross-entropy.
      training = {"trained_by": loss, "learning_rate": rate, "seed": seed}
      records.append(json.dumps({**training, **dataclasses.asdict(scores)}))
    final = [scores for (rate, _), scores in of.items() if rate == best[loss]]
    rows.append(
      f"| {loss} | {best[loss]:g} | {len(final)} "
      f"| {_told([s.acceptance for s in final], 4)} "
      f"| {_told([s.tokens_per_target_pass for s in final], 2)} |"
    )
  head = [
    "| loss | learning rate | seeds | acceptance | τ |",
    "|---|--:|--:|--:|--:|",
  ]
  for name, lines in (("losses.md", head + rows), ("losses.jsonl", records)):
    (folder / name).write_text("\n".join(lines) + "\n")
  print("\n".join(head + rows))


def _told(values: Sequence[float | None], digits: int) -> str:
  """Mean, and of several values half the distance between their ends."""
  known = [value for value in values if value is not None]
  mean = f"{statistics.mean(known):.{digits}f}"
  half = (max(known) - min(known)) / 2
  return mean if len(known) == 1 else f"{mean} ± {half:.{digits}f}"


if __name__ == "__main__":
  app.run(main)
