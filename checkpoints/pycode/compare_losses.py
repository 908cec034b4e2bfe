"""Compares the losses that a draft can be trained with, for the model card.

    python checkpoints/pycode/compare_losses.py --work=FOLDER

FOLDER is that of recipe.sh, with the corpus and the trained target. For each
loss: one training for each learning rate, then two more seeds at the one that
the target would accept most from. The same data, steps and architecture for
all; what is measured is what `specdec train` measures, on packages that nobody
was trained on. Killed? The same command goes on. Writes losses.md and
losses.jsonl into FOLDER/losses.
"""

import dataclasses
import json
import statistics
from collections.abc import Sequence
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
_STEPS = flags.DEFINE_integer("steps", 120, "Of each training.")

_HERE = Path(__file__).parent
_RATES = (2e-3, 4e-3, 8e-3)
_SEEDS = (0, 1, 2)
_BATCH_SIZE = 16
_SEQUENCE_LENGTH = 256
# Of the corpus's documents one in so many: enough for all steps.
_EVERY = 8


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
      packed[1], rows=128, batch_size=_BATCH_SIZE, prompts=32
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
  rows = ["| loss | learning rate | acceptance | τ |", "|---|--:|--:|--:|"]
  records = []
  for loss in (losses.CROSS_ENTROPY, *losses.DISTILLATION):
    found = {(rate, 0): study.train(loss, rate, 0) for rate in _RATES}
    best = max(_RATES, key=lambda rate: found[rate, 0].score)
    for seed in _SEEDS[1:]:
      found[best, seed] = study.train(loss, best, seed)
    for (rate, seed), scores in found.items():
      # The scores have a "loss" too, the cross-entropy.
      training = {"trained_by": loss, "learning_rate": rate, "seed": seed}
      records.append({**training, **dataclasses.asdict(scores)})
    final = [found[best, seed] for seed in _SEEDS]
    rows.append(
      f"| {loss} | {best:g} "
      f"| {_told([s.acceptance for s in final], 4)} "
      f"| {_told([s.tokens_per_target_pass for s in final], 2)} |"
    )
    print(rows[-1], flush=True)
  lines = [json.dumps(record) for record in records]
  for name, content in (("losses.md", rows), ("losses.jsonl", lines)):
    path = study.work / "losses" / name
    path.write_text("\n".join(content) + "\n")


def _told(values: Sequence[float | None], digits: int) -> str:
  """Mean, and half the distance between the ends."""
  known = [value for value in values if value is not None]
  half = (max(known) - min(known)) / 2
  return f"{statistics.mean(known):.{digits}f} ± {half:.{digits}f}"


if __name__ == "__main__":
  app.run(main)
