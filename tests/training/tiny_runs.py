"""Trainings of a tiny model that take a second or two."""

import json
import random
from pathlib import Path

from tests import tiny

STEPS = 9
_FLAGS = (
  f"--steps={STEPS}",
  "--evaluate_every=3",
  "--batch_size=4",
  "--sequence_length=16",
  "--held_out_rows=6",
  "--learning_rate=0.01",
  "--warmup_steps=2",
)


# Everything that a training can carry from step to step.
LOADED = ("--accumulate=2", "--average_decay=0.5", "--optimizer=muon")


def save_corpus(folder: Path) -> Path:
  """Saves texts, a config, its tokenizer and a teacher; returns the folder."""
  tiny.save_tokenizer(folder, 32)
  (folder / "config.json").write_text(json.dumps(tiny.CONFIGS["llama-tied"]))
  teacher = folder / "teacher"
  teacher.mkdir()
  tiny.save(teacher, "llama")
  tiny.save_tokenizer(teacher, 32)
  draw = random.Random(0)
  with (folder / "texts.jsonl").open("w") as file:
    for _ in range(60):
      words = [f"w{int(draw.paretovariate(0.7)) % 31}" for _ in range(40)]
      file.write(json.dumps({"text": " ".join(words)}) + "\n")
  return folder


def flags(corpus: Path, output: Path, *more: str) -> list[str]:
  """The arguments of `specdec` for a fresh model; later flags win."""
  return [
    "train",
    f"--config={corpus / 'config.json'}",
    f"--tokenizer={corpus}",
    f"--data={corpus / 'texts.jsonl'}",
    f"--output={output}",
    *_FLAGS,
    *more,
  ]


def metrics(output: Path) -> list[dict]:
  """What a training wrote down, all but what the clock said.

  A line that is not whole is left out.
  """
  path = output / "training" / "metrics.jsonl"
  *whole, _ = path.read_text().split("\n")
  lines = map(json.loads, whole)
  return [{k: v for k, v in line.items() if k != "seconds"} for line in lines]


def losses(output: Path) -> list[float]:
  """The loss of each step."""
  return [line["loss"] for line in metrics(output) if "loss" in line]


def held_out(output: Path) -> list[dict]:
  """What was measured on held-out texts, line by line."""
  return [line for line in metrics(output) if "held_out" in line]


def weights(output: Path) -> bytes:
  """The model in the folder, bit for bit."""
  return (output / "model.safetensors").read_bytes()
