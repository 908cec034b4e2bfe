"""A training that is killed goes on as if nothing had happened."""

import json
import os
import random
import signal
import subprocess
import sys

import pytest

from specdec_jax.cli import main
from specdec_jax.training.checkpoints import Checkpoints
from specdec_jax.training.metrics import MetricsFile
from specdec_jax.training.student import Student
from tests.training import tiny_runs
from tests.training.tiny_runs import STEPS

# Users do not see them, and other versions of a library have other ones.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

# The command, and a kill in it: in the middle of a line of the metrics, or
# while a checkpoint is being written.
_KILLED = {
  "line": """
from specdec_jax.training.metrics import MetricsFile
write = MetricsFile.write
def killed(file, step, values):
  if step == {step}:
    file._file.write(b'{{"step": ')
    os.kill(os.getpid(), signal.SIGKILL)
  write(file, step, values)
MetricsFile.write = killed
""",
  "checkpoint": """
from orbax.checkpoint import v1 as ocp
save = ocp.training.Checkpointer.save
def killed(checkpointer, step, state, **kwargs):
  if step >= {step}:
    checkpointer.save_async(step, state, **kwargs)
    os.kill(os.getpid(), signal.SIGKILL)
  save(checkpointer, step, state, **kwargs)
ocp.training.Checkpointer.save = killed
""",
}
_COMMAND = """
import os, signal, sys
from specdec_jax.cli import main
{kill}
sys.exit(main.main(sys.argv[1:]))
"""
# What this process has by tests/conftest.py, so that both compile the same.
_SETTINGS = {
  "JAX_NUM_CPU_DEVICES": "8",
  "JAX_DEFAULT_MATMUL_PRECISION": "highest",
}


def _kill(argv, where, step):
  """Runs the command until it dies."""
  command = _COMMAND.format(kill=_KILLED[where].format(step=step))
  done = subprocess.run(
    [sys.executable, "-c", command, *argv],
    env=os.environ | _SETTINGS,
    capture_output=True,
    check=False,
  )
  assert done.returncode == -signal.SIGKILL, done.stderr.decode()


def _check_killed(argv, where, seed, killed, whole):
  """Kills the command between its first checkpoint and its last one."""
  step = random.Random(seed).randrange(4, STEPS)
  _kill(argv, where, step)
  assert 3 <= len(tiny_runs.losses(killed)) < STEPS
  # So would look what a kill leaves while the model is being written.
  (killed / "model.partial.partial-1" / "half").mkdir(parents=True)
  assert main.main(argv) == 0
  assert tiny_runs.metrics(killed) == tiny_runs.metrics(whole)
  assert tiny_runs.weights(killed) == tiny_runs.weights(whole)
  # Nothing is left of the kill.
  names = sorted(path.name for path in killed.rglob("*"))
  assert not [name for name in names if "partial" in name or "tmp" in name]


def test_killed_with_a_teacher(corpus, tmp_path, no_picture):
  flags = f"--teacher={corpus / 'teacher'}", "--num_draft_tokens=2"
  whole, killed = tmp_path / "whole", tmp_path / "killed"
  assert main.main(tiny_runs.flags(corpus, whole, *flags)) == 0
  argv = tiny_runs.flags(corpus, killed, *flags)
  _check_killed(argv, "line", 0, killed, whole)
  (first, *_) = tiny_runs.held_out(killed)
  assert {"acceptance", "tokens_per_target_pass"} <= first["held_out"].keys()


def test_killed_with_all_that_is_carried(corpus, loaded, tmp_path, no_picture):
  killed = tmp_path / "killed"
  argv = tiny_runs.flags(corpus, killed, *tiny_runs.LOADED)
  _check_killed(argv, "checkpoint", 1, killed, loaded)


def test_a_finished_training_is_not_made_again(whole, corpus, capsys):
  before = tiny_runs.metrics(whole), tiny_runs.weights(whole)
  assert main.main(tiny_runs.flags(corpus, whole)) == 0
  assert capsys.readouterr().out.splitlines() == [
    f"goes on from step {STEPS}",
    f"wrote {whole}",
  ]
  assert (tiny_runs.metrics(whole), tiny_runs.weights(whole)) == before


@pytest.mark.parametrize(
  "flag, was, now",
  [
    ("--learning_rate=0.02", "learning_rate was 0.01", "0.02"),
    ("--optimizer=muon", "optimizer was 'adamw'", "'muon'"),
    ("--average_decay=0.9", "average_decay was None", "0.9"),
    ("--batch_size=2", "batch_size was 4", "2"),
    ("--sequence_length=8", "sequence_length was 16", "8"),
    ("--steps=10", f"steps was {STEPS}", "10"),
    ("--held_out_rows=5", "held_out_rows was 6", "5"),
    ("--seed=1", "seed was 0", "1"),
  ],
)
def test_other_flags_are_refused_by_name(whole, corpus, capsys, flag, was, now):
  before = tiny_runs.weights(whole)
  assert main.main(tiny_runs.flags(corpus, whole, flag)) == 2
  error = capsys.readouterr().err
  assert error.count("\n") == 1
  assert f"{whole} holds another training: " in error
  assert f"{was}, now {now}" in error
  assert tiny_runs.weights(whole) == before


def test_another_shape_of_the_same_weights_is_refused(
  whole, corpus, tmp_path, capsys
):
  fields = json.loads((corpus / "config.json").read_text())
  config = tmp_path / "config.json"
  config.write_text(json.dumps({**fields, "rms_norm_eps": 1e-3}))
  assert main.main(tiny_runs.flags(corpus, whole, f"--config={config}")) == 2
  assert "student was '" in capsys.readouterr().err


def test_before_the_first_checkpoint_it_may_become_another_one(
  train, whole, monkeypatch
):
  with monkeypatch.context() as patched:
    patched.setattr(MetricsFile, "write", _interrupted_at(2))
    assert train("--seed=1")[0] == 130
  assert (train.output / "training" / "run.json").is_file()
  code, out, _ = train()
  assert code == 0 and out.startswith("step 3: ")
  assert tiny_runs.metrics(train.output) == tiny_runs.metrics(whole)


def test_a_kill_between_the_best_checkpoint_and_its_model(train, monkeypatch):
  """The model is made up for at once, not with the next one that is better."""
  write = Student.write

  def killed(student, folder, params):
    if (folder / "config.json").exists():
      raise KeyboardInterrupt
    write(student, folder, params)

  with monkeypatch.context() as patched:
    patched.setattr(Student, "write", killed)
    assert train()[0] == 130
  with Checkpoints(train.output / "training" / "checkpoints") as checkpoints:
    assert checkpoints.best == 6
  old = tiny_runs.weights(train.output)
  with monkeypatch.context() as patched:
    patched.setattr(MetricsFile, "write", _interrupted_at(7))
    assert train()[0] == 130
  assert tiny_runs.weights(train.output) != old


def test_other_texts_are_refused(whole, corpus, capsys):
  more = f"--data={corpus / 'config.json'}"
  assert main.main(tiny_runs.flags(corpus, whole, more)) == 2
  assert "data was '" in capsys.readouterr().err


def _interrupted_at(step):
  """MetricsFile.write, but for Ctrl-C at a step."""
  write = MetricsFile.write

  def interrupted(file, now, values):
    if now == step:
      signal.raise_signal(signal.SIGINT)
    write(file, now, values)

  return interrupted


def test_ctrl_c_goes_on_like_a_kill(train, whole, monkeypatch):
  with monkeypatch.context() as patched:
    patched.setattr(MetricsFile, "write", _interrupted_at(5))
    code, _, err = train()
  assert code == 130
  assert err == (
    "note: the same command goes on from the newest checkpoint\n"
    "specdec train: interrupted\n"
  )
  code, out, _ = train()
  assert code == 0 and out.startswith("goes on from step 3\n")
  assert tiny_runs.metrics(train.output) == tiny_runs.metrics(whole)
  assert tiny_runs.weights(train.output) == tiny_runs.weights(whole)
