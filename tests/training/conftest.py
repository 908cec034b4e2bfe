"""Runs `specdec train` on tiny models."""

import pytest

from specdec_jax.cli import main
from specdec_jax.training import plot
from tests.training import tiny_runs


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
  return tiny_runs.save_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="session")
def whole(corpus, tmp_path_factory):
  """The folder of a training that nothing happened to. Not to be written."""
  output = tmp_path_factory.mktemp("whole") / "model"
  assert main.main(tiny_runs.flags(corpus, output)) == 0
  return output


@pytest.fixture(scope="session")
def loaded(corpus, tmp_path_factory):
  """The same with all of `LOADED`."""
  output = tmp_path_factory.mktemp("loaded") / "model"
  assert main.main(tiny_runs.flags(corpus, output, *tiny_runs.LOADED)) == 0
  return output


@pytest.fixture
def no_picture(whole, monkeypatch):
  """A picture takes longer than the steps before it; `whole` has one."""
  monkeypatch.setattr(plot, "write", lambda *_: None)


@pytest.fixture
def train(corpus, tmp_path, capsys, no_picture):
  """Runs the command into a folder of its own.

  Returns exit code, stdout and stderr; `train.output` is the folder.
  """

  def run(*flags):
    capsys.readouterr()
    code = main.main(tiny_runs.flags(corpus, run.output, *flags))
    return code, *capsys.readouterr()

  run.output = tmp_path / "model"
  return run
