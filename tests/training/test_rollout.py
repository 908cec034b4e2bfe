"""Data that teacher or student write on the way."""

import json

import numpy as np
import pytest

from specdec_jax import sharding
from specdec_jax.cli import main as dispatcher
from specdec_jax.loading import loader
from specdec_jax.training import prune, rollout, student
from specdec_jax.training.data import PackedTexts, TextBatches, prompt_length
from specdec_jax.training.evaluate import Examination
from specdec_jax.training.optimizer import OptimizerConfig
from specdec_jax.training.rollout import RolloutConfig, Rollouts
from specdec_jax.training.trainer import Training, TrainingConfig
from tests.cli.tiny_checkpoint import save_checkpoint
from tests.compilations import compilations
from tests.decode import toys

TEACHER = toys.tiny(seed=1)
STUDENT = toys.perturbed(TEACHER, 0.2, seed=2)
OTHER = toys.tiny(seed=3)
# Rows of T + 1 tokens.
T = 12
PROMPT = prompt_length(T)
TEXTS = PackedTexts(
  np.random.default_rng(0).integers(0, toys.TINY_VOCAB, (20, T + 1), np.int32),
  bytes_per_token=1.0,
)
SOURCE = " ".join(map(str, np.random.default_rng(0).integers(0, 999, 400)))
ONE_TEXT = PackedTexts(TEXTS.row_NT[:1], bytes_per_token=1.0)


def _rollouts(
  writer, *, teacher=TEACHER, texts=TEXTS, size=4, seed=0, **config
):
  return Rollouts(
    RolloutConfig(writer, **config),
    TextBatches(texts, size, seed),
    STUDENT,
    STUDENT.network,
    teacher,
    num_draft_tokens=3,
  )


@pytest.mark.parametrize(
  "writer, author", [("teacher", TEACHER), ("student", OTHER)]
)
def test_greedy_rows_are_what_the_writer_says_after_the_prompts(writer, author):
  rollouts = _rollouts(writer, temperature=0.0)
  row_BT, weight_BT = rollouts(2, OTHER.params)
  text_BT = TEXTS.batch(2, 4, seed=0)
  np.testing.assert_array_equal(row_BT[:, :PROMPT], text_BT[:, :PROMPT])
  for row, text in zip(row_BT.tolist(), text_BT.tolist(), strict=True):
    expected = toys.greedy_text(author, text[:PROMPT], T - PROMPT)
    assert row[PROMPT:T] == expected
  # No position of the prompt counts, and the row's last has no label.
  expected_T = [0] * (PROMPT - 1) + [1] * (T - PROMPT) + [0]
  assert weight_BT.tolist() == [expected_T] * 4


def test_drawn_rows_are_the_teachers_whoever_drafts():
  # As a student of its own it writes plainly.
  plain_BT, _ = _rollouts("student")(5, TEACHER.params)
  rollouts = _rollouts("teacher")
  for draft in (STUDENT, OTHER):
    row_BT, _ = rollouts(5, draft.params)
    np.testing.assert_array_equal(row_BT, plain_BT)
  other_BT, _ = _rollouts("student")(5, OTHER.params)
  assert (other_BT != plain_BT).any()


def test_each_row_of_each_step_is_drawn_by_itself():
  rows = [
    tuple(row)
    for seed in (0, 1)
    for step in (0, 1)
    for row in _rollouts("student", texts=ONE_TEXT, seed=seed)(
      step, STUDENT.params
    )[0].tolist()
  ]
  assert len({row[:PROMPT] for row in rows}) == 1
  assert len(set(rows)) == len(rows)
  again_BT, _ = _rollouts("student", texts=ONE_TEXT)(0, STUDENT.params)
  assert list(map(tuple, again_BT.tolist())) == rows[:4]


def test_what_follows_a_generated_end_does_not_count():
  eos = toys.TINY_VOCAB - 1
  # The first and the last place that is generated, one between, and none.
  ends = [PROMPT, T - 1, 6, None]
  script_BP = np.random.default_rng(1).integers(0, eos, (4, 64))
  for row, end in enumerate(ends):
    if end is not None:
      script_BP[row, end] = eos
  logits_BPV = toys.certain(script_BP, toys.TINY_VOCAB)
  teacher = toys.script_model(logits_BPV, eos_ids=(eos,))
  rollouts = _rollouts("teacher", teacher=teacher, size=6, share=0.7)
  row_BT, weight_BT = rollouts(0, STUDENT.params)
  for row, end in enumerate(ends):
    length = T if end is None else end + 1
    written = row_BT[row, PROMPT:length].tolist()
    assert written == script_BP[row, PROMPT:length].tolist()
    counted = np.flatnonzero(weight_BT[row]).tolist()
    assert counted == list(range(PROMPT - 1, length - 1))
  # The rest of the batch is text, and all of it counts.
  np.testing.assert_array_equal(row_BT[4:], TEXTS.batch(0, 6, seed=0)[4:])
  assert (weight_BT[4:] == 1).all()


@pytest.mark.parametrize("writer", rollout.WRITERS)
def test_new_weights_compile_nothing(writer):
  rollouts = _rollouts(writer)
  rollouts(0, STUDENT.params)
  with compilations() as found:
    rollouts(1, OTHER.params)
  assert not found


class Interrupted(Exception):
  """In the place of a kill."""


@pytest.fixture(scope="module")
def models(tmp_path_factory):
  folder = tmp_path_factory.mktemp("models")
  return {
    "teacher": save_checkpoint(folder / "teacher", seed=0),
    "student": save_checkpoint(folder / "student", seed=0, noise=0.3),
  }


def _training(models, folder, *, teacher=True, vocabulary=None, **config):
  mesh = sharding.make_mesh()
  pupil = student.from_checkpoint(str(models["student"]), mesh)
  if vocabulary:
    pupil = prune.limit_vocabulary(pupil, ["a few letters"], vocabulary)
  texts, unseen = (
    PackedTexts.of(
      [SOURCE[begin : begin + 600]],
      pupil.model.tokenizer,
      pupil.model.eos_ids[0],
      sequence_length=16,
      name="data",
    )
    for begin in (0, 600)
  )
  return Training(
    folder,
    pupil,
    texts,
    Examination(unseen, rows=4, batch_size=4, prompts=2, num_draft_tokens=3),
    TrainingConfig(
      **{
        "steps": 5,
        "batch_size": 4,
        "optimizer": OptimizerConfig(learning_rate=1e-2, warmup_steps=1),
        "evaluate_every": 3,
        **config,
      }
    ),
    loader.load(str(models["teacher"]), dtype="float32", mesh=mesh)
    if teacher
    else None,
  )


def _metrics(folder):
  lines = (folder / "training" / "metrics.jsonl").read_text().splitlines()
  found = [json.loads(line) for line in lines]
  for line in found:
    line.pop("seconds", None)
  return found


@pytest.mark.parametrize(
  "loss, config",
  [
    ("forward_kl", RolloutConfig("student", share=0.5)),
    # Sequence-level distillation.
    ("cross_entropy", RolloutConfig("teacher")),
  ],
  ids=["student", "teacher"],
)
def test_a_training_goes_on_exactly(
  tmp_path, models, monkeypatch, loss, config
):
  compiled = []
  generate = Rollouts.__call__

  def counted(self, step, params):
    with compilations() as found:
      batch = generate(self, step, params)
    compiled.append((step, len(found)))
    return batch

  monkeypatch.setattr(Rollouts, "__call__", counted)
  whole, broken = tmp_path / "whole", tmp_path / "broken"
  scores = _training(models, whole, loss=loss, rollout=config).run()
  # Weights that a step has changed are no news to the decoder.
  assert [step for step, _ in compiled] == [0, 1, 2, 3, 4]
  assert [count for _, count in compiled[1:]] == [0] * 4

  def interrupt(line):
    raise Interrupted

  with pytest.raises(Interrupted):
    _training(models, broken, loss=loss, rollout=config).run(interrupt)
  assert _training(models, broken, loss=loss, rollout=config).run() == scores
  assert _metrics(broken) == _metrics(whole)
  # With a teacher it is measured, whatever is learnt from it.
  assert 0 < scores.acceptance < 1
  counts = [m["tokens"] for m in _metrics(whole) if "tokens" in m]
  rows = 4 - config.rows(4)
  assert all(rows * 16 < n <= rows * 16 + (4 - rows) * 12 for n in counts)


@pytest.mark.parametrize("writer", rollout.WRITERS)
def test_a_student_of_few_tokens_writes_and_drafts(
  tmp_path, models, monkeypatch, writer
):
  rows = []
  generate = Rollouts.__call__

  def kept(self, step, params):
    rows.append(generate(self, step, params)[0][:, prompt_length(16) : -1])
    return generate(self, step, params)

  monkeypatch.setattr(Rollouts, "__call__", kept)
  config = RolloutConfig(writer)
  training = _training(
    models,
    tmp_path,
    vocabulary=20,
    steps=1,
    optimizer=OptimizerConfig(warmup_steps=0),
    loss="forward_kl",
    rollout=config,
  )
  training.run()
  # What ends a row, and what fills it up, are two of at most 21.
  assert (len(np.unique(rows)) <= 21) == (writer == "student")


@pytest.mark.parametrize(
  "fields, words",
  [
    ({"writer": "parent"}, "expected one of teacher, student, got 'parent'"),
    (
      {"writer": "teacher", "share": 0.0},
      "share: expected a share in (0, 1], got 0.0",
    ),
    (
      {"writer": "teacher", "share": float("nan")},
      "share: expected a share in (0, 1], got nan",
    ),
    ({"writer": "teacher", "temperature": -1.0}, "temperature: expected"),
  ],
)
def test_what_is_no_rollout_is_refused(fields, words):
  with pytest.raises(ValueError) as error:
    RolloutConfig(**fields)
  assert words in str(error.value)


@pytest.mark.parametrize(
  "changed, words",
  [
    ({"has_teacher": False}, "expected a teacher"),
    ({"loss": "cross_entropy"}, "nothing to learn from its own texts"),
    ({"batch_size": 2}, "0.2 of 2 is none; expected at least 0.5"),
    ({"length": 1}, "expected at least 2"),
  ],
)
def test_what_a_training_cannot_use_is_refused(changed, words):
  fits = {"loss": "forward_kl", "has_teacher": True, "batch_size": 8}
  config = RolloutConfig("student", share=0.2)
  config.check(**fits, length=8)
  with pytest.raises(ValueError) as error:
    config.check(**{**fits, "length": 8, **changed})
  assert words in str(error.value)


def test_a_training_checks_its_rollouts_and_its_teacher(tmp_path, models):
  config = RolloutConfig("teacher")
  with pytest.raises(ValueError, match="generate: expected a teacher"):
    _training(models, tmp_path, teacher=False, rollout=config)
  with pytest.raises(ValueError, match="forward_kl needs a teacher, got none"):
    _training(models, tmp_path, teacher=False, loss="forward_kl")
  assert not any(tmp_path.iterdir())


def test_other_rollouts_are_another_training(tmp_path, models):
  _training(models, tmp_path, loss="forward_kl").run()
  other = _training(
    models, tmp_path, loss="forward_kl", rollout=RolloutConfig("teacher")
  )
  with pytest.raises(ValueError, match="rollout was None, now"):
    other.run()


def test_the_flags_arrive(tmp_path, models):
  text = tmp_path / "text.py"
  text.write_text(SOURCE[:600])
  flags = {
    "output": tmp_path / "draft",
    "data": text,
    "held_out": text,
    "student": models["student"],
    "teacher": models["teacher"],
    "generate": "student",
    "generated_share": 0.5,
    "generate_temperature": 0,
    "sequence_length": 16,
    "batch_size": 4,
    "steps": 1,
    "held_out_rows": 4,
    "num_draft_tokens": 3,
  }
  argv = [f"--{name}={value}" for name, value in flags.items()]
  assert dispatcher.main(["train", *argv]) == 0
  run = json.loads((tmp_path / "draft" / "training" / "run.json").read_text())
  assert run["rollout"] == {
    "writer": "student",
    "share": 0.5,
    "temperature": 0.0,
  }
  assert (tmp_path / "draft" / "config.json").is_file()


def test_flags_of_generating_need_it(capsys):
  flags = ["--output=x", "--data=y", "--student=z", "--generated_share=0.5"]
  assert dispatcher.main(["train", *flags]) == 2
  assert "expected --generate with it" in capsys.readouterr().err
