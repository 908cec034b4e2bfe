"""What goes wrong on the way leaves the last good model and checkpoint."""

import contextlib
import dataclasses
import errno
import math
import os
import resource

import numpy as np
import pytest
import safetensors.numpy

from specdec_jax.loading import loader
from specdec_jax.training.checkpoints import Checkpoints
from specdec_jax.training.evaluate import Examination, Scores
from specdec_jax.training.metrics import MetricsFile
from specdec_jax.training.student import Student
from tests import tiny
from tests.training import tiny_runs

# Users do not see them, and other versions of a library have other ones.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

NAN = float("nan")


@contextlib.contextmanager
def _room_for(size):
  """Lets no file grow past a size: a write fails as on a full disk.

  That of orbax as well, which is none of Python's. Python ignores the signal.
  """
  before = resource.getrlimit(resource.RLIMIT_FSIZE)
  try:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    yield
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
  "owner, name, call, file",
  [
    (Checkpoints, "save", 1, "checkpoints"),
    (MetricsFile, "write", 4, "metrics.jsonl"),
    (Student, "write", 1, ""),
  ],
)
# orbax leaves an event loop behind, which Python complains of at some time.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_full_disk(train, whole, monkeypatch, owner, name, call, file):
  """It is full for one call, some steps after the first checkpoint."""
  original = getattr(owner, name)
  calls = []

  def full(*args):
    calls.append(args)
    room = 200 if len(calls) == call + 1 else resource.RLIM_INFINITY
    with _room_for(room):
      return original(*args)

  with monkeypatch.context() as patched:
    patched.setattr(owner, name, full)
    code, _, err = train()
  assert code == 2
  note, error = err.splitlines()
  assert note == "note: the same command goes on from the newest checkpoint"
  path = train.output / "training" / file if file else train.output
  assert error.startswith(f"specdec train: error: {path}: ")
  if owner is Checkpoints:
    assert "cannot write the checkpoint of step 6" in error
    assert "the last good checkpoint is that of step 3" in error
  else:
    assert error.endswith(f": {os.strerror(errno.EFBIG)}")
  # The model is there, and nothing that was only half written.
  loader.load(str(train.output), dtype="float32")
  assert not list(train.output.rglob("*partial*"))
  code, out, _ = train()
  begin = 6 if owner is Student else 3
  assert code == 0 and out.startswith(f"goes on from step {begin}\n")
  assert tiny_runs.metrics(train.output) == tiny_runs.metrics(whole)
  assert tiny_runs.weights(train.output) == tiny_runs.weights(whole)


@pytest.mark.parametrize("every, kept", [(1, 1), (5, None)])
def test_a_gradient_that_is_no_number(train, every, kept):
  """The first step makes the weights so large that the second one fails."""
  code, _, err = train("--learning_rate=1e30", f"--evaluate_every={every}")
  assert code == 2
  assert err.count("\n") == 1, err
  assert "error: step 2: gradient_norm is nan (the gradients of " in err
  assert "not finite, first those of embed.weight); " in err
  if kept:
    assert f"the last good checkpoint is that of step {kept}. " in err
  else:
    assert "there is no checkpoint yet. " in err
  with Checkpoints(train.output / "training" / "checkpoints") as checkpoints:
    assert checkpoints.latest == kept
  assert all(map(math.isfinite, tiny_runs.losses(train.output)))
  assert len(tiny_runs.losses(train.output)) == 1
  assert (train.output / "config.json").exists() == bool(kept)


def test_a_held_out_loss_that_is_no_number(train, monkeypatch):
  """It is no checkpoint, so that nothing goes on from it."""
  examine = Examination.__call__
  calls = []

  def broken(*args):
    calls.append(args)
    scores = examine(*args)
    return scores if len(calls) == 1 else dataclasses.replace(scores, loss=NAN)

  monkeypatch.setattr(Examination, "__call__", broken)
  code, out, err = train()
  assert code == 2 and out.startswith("step 3: loss ")
  assert err == (
    "specdec train: error: step 6: loss is nan (held out); the last good "
    "checkpoint is that of step 3. Train in another folder with a lower "
    "learning rate, or look at the data\n"
  )
  with Checkpoints(train.output / "training" / "checkpoints") as checkpoints:
    assert checkpoints.latest == 3
  steps = [line["step"] for line in tiny_runs.held_out(train.output)]
  assert steps == [3]
  model = loader.load(str(train.output), dtype="float32")
  assert all(np.isfinite(value).all() for value in model.params.values())


@pytest.mark.parametrize("role", ["student", "teacher"])
def test_a_checkpoint_that_is_broken_is_refused(train, corpus, tmp_path, role):
  broken = tmp_path / "broken"
  broken.mkdir()
  tiny.save(broken, "llama-tied")
  tiny.save_tokenizer(broken, 32)
  path = broken / "model.safetensors"
  tensors = safetensors.numpy.load_file(path)
  tensors["model.layers.1.mlp.up_proj.weight"][3, 5] = np.nan
  safetensors.numpy.save_file(tensors, path, {"format": "pt"})
  flags = [f"--{role}={broken}"]
  if role == "student":
    flags += ["--config=", "--tokenizer="]
  code, _, err = train(*flags)
  assert code == 2
  assert err == (
    f"specdec train: error: {broken}: expected finite weights, but "
    "layers.1.mlp.up.weight has some that are infinite or no number; take "
    "another checkpoint\n"
  )
  assert not train.output.exists()


def test_the_folder_holds_the_best_checkpoint(train, monkeypatch):
  """Of three that are 0.2, 0.1 and 0.3 from the best possible."""
  seen = []

  def scores(examination, objective, params, *_):
    seen.append({name: np.asarray(value) for name, value in params.items()})
    return Scores((0.2, 0.1, 0.3)[len(seen) - 1], bits_per_byte=1.0)

  original = Student.write
  written = []

  def write(student, folder, params):
    written.append(np.asarray(params["embed.weight"]))
    original(student, folder, params)

  monkeypatch.setattr(Examination, "__call__", scores)
  monkeypatch.setattr(Student, "write", write)
  code, *_ = train()
  assert code == 0 and len(seen) == 3
  # The third is never there, and none is written twice.
  for value, scored in zip(written, (0, 1), strict=True):
    np.testing.assert_array_equal(value, seen[scored]["embed.weight"])
  model = loader.load(str(train.output), dtype="float32")
  for name, value in model.params.items():
    np.testing.assert_array_equal(value, seen[1][name])
  assert any((seen[2][name] != seen[1][name]).any() for name in seen[1])
