"""What `specdec train` refuses, before anything is trained or written."""

import re

import pytest

from specdec_jax.cli import main, train_flags
from tests.cli.tiny_checkpoint import save_checkpoint
from tests.training import tiny_runs


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
  return tiny_runs.save_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture
def refused(corpus, tmp_path, capsys):
  """Runs the command with bad input; returns its one line."""

  def refused(*flags):
    output = tmp_path / "model"
    capsys.readouterr()
    code = main.main(tiny_runs.flags(corpus, output, *flags))
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.startswith("specdec train: error: ") and err.count("\n") == 1
    assert not output.exists()
    return err.removeprefix("specdec train: error: ").rstrip("\n")

  return refused


@pytest.mark.parametrize(
  "flags, reason",
  [
    (["--output="], "--output: expected a folder, got none"),
    (["--data="], "--data: expected files or folders, got none"),
    (["--config="], "--student, .* or --config, .* got neither"),
    (["--student=x"], "--student, .* or --config, .* got both"),
    (["--tokenizer="], "--tokenizer: .* got none"),
    (["--student=x", "--config="], "--tokenizer: .* with --student"),
    (["--teacher={output}"], "--output is the folder of --teacher"),
    (["--batch_size=0"], "^batch_size: expected an integer of at least 1"),
    (["--accumulate=-1"], "^accumulate: expected an integer of at least 1"),
    (["--accumulate=3"], "^accumulate: expected a divisor .* 4 rows, got 3"),
    (["--evaluate_every=0"], "^evaluate_every: expected an integer"),
    (["--seed=-1"], "^seed: expected an integer of at least 0, got -1"),
    (["--learning_rate=0"], "^learning_rate: expected a number above 0"),
    (["--learning_rate=nan"], "^learning_rate: .* above 0, got nan"),
    (["--learning_rate=-1"], "^learning_rate: .* above 0, got -1"),
    (["--warmup_steps=-1"], "^warmup_steps: expected an integer of at least 0"),
    (["--weight_decay=-0.1"], "^weight_decay: expected a number of at least 0"),
    (["--weight_decay=inf"], "^weight_decay: .* got inf"),
    (["--clip_norm=0"], "^clip_norm: expected a number above 0"),
    (["--average_decay=1"], r"^average_decay: expected a share in \[0, 1\)"),
    (["--average_decay=nan"], "^average_decay: .* got nan"),
    (["--held_out_rows=0"], "^held_out_rows: expected an integer of at least"),
    (["--num_draft_tokens=0"], "^num_draft_tokens: expected an integer"),
    (["--sequence_length=0"], "^sequence_length: expected an integer"),
    (
      ["--sequence_length=65", "--held_out={texts}"],
      "^sequence_length: expected at most 64, .* 65",
    ),
    (["--sequence_length=9999"], "^data: expected 10000 tokens"),
    (["--warmup_steps=9"], "^warmup_steps: expected fewer than the 9 steps"),
    (["--mesh=2"], "^--mesh: expected data:N"),
    (["--loss=forward_kl"], "loss: forward_kl needs a teacher"),
    (["--data=nowhere"], "no such file or folder: nowhere"),
    (["--held_out=nowhere"], "no such file or folder: nowhere"),
    (["--config=nowhere.json"], "no nowhere.json in ."),
    (["x"], "unexpected argument 'x'"),
  ],
)
def test_bad_flags(refused, corpus, tmp_path, flags, reason):
  paths = {"output": tmp_path / "model", "texts": corpus / "texts.jsonl"}
  error = refused(*(flag.format(**paths) for flag in flags))
  assert re.search(reason, error), error


@pytest.mark.parametrize("steps", ["-1", "x"])
def test_steps(refused, steps):
  assert "steps" in refused(f"--steps={steps}")


def test_an_empty_folder(refused, tmp_path):
  folder = tmp_path / "empty"
  folder.mkdir()
  assert refused(f"--data={folder}") == (
    f"no data in {folder}: expected .jsonl, .md, .py, .txt files, found none"
  )


def test_a_teacher_with_other_tokens(refused, tmp_path):
  teacher = save_checkpoint(tmp_path / "teacher")
  error = refused(f"--teacher={teacher}")
  assert "have different tokenizers: token 0 is 'w0' in one and '!'" in error
  assert error.endswith("a student needs the teacher's tokenizer")


@pytest.mark.parametrize("name", ["config.json", "notes.txt"])
def test_a_folder_with_something_else_in_it(corpus, tmp_path, capsys, name):
  """A model would be overwritten, or read together with the new one."""
  output = tmp_path / "model"
  output.mkdir()
  (output / name).write_text("mine")
  assert main.main(tiny_runs.flags(corpus, output)) == 2
  assert capsys.readouterr().err == (
    f"specdec train: error: {output} is in use; expected a new or an empty "
    "folder\n"
  )
  assert [(f.name, f.read_text()) for f in output.iterdir()] == [(name, "mine")]


def test_texts_that_are_held_out_and_trained_on_are_told_of(
  corpus, tmp_path, capsys
):
  output = tmp_path / "model"
  texts = corpus / "texts.jsonl"
  flags = [f"--held_out={texts}", "--steps=1", "--warmup_steps=0"]
  assert main.main(tiny_runs.flags(corpus, output, *flags)) == 0
  assert capsys.readouterr().err.startswith(
    "note: 60 of 60 held-out texts are in --data as well: "
  )


def test_a_student_that_cannot_read(refused, tmp_path):
  student = save_checkpoint(tmp_path / "student")
  (student / "tokenizer.json").unlink()
  (student / "tokenizer_config.json").unlink()
  error = refused(f"--student={student}", "--config=", "--tokenizer=")
  assert error == f"{student} has no tokenizer, which texts need"


def test_help_names_every_flag(capsys):
  assert main.main(["train", "--help"]) == 0
  text = capsys.readouterr().out
  assert all(f"--{name}" in text for name in train_flags.FLAGS)
