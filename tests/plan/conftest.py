"""Models as config.json files: shapes of real pairs, no weights."""

import json
import pathlib

import pytest

from specdec_jax.cli import main

CONFIGS = pathlib.Path(__file__).parent / "configs"


@pytest.fixture
def plan(capsys):
  """Runs the command; returns its exit code, stdout and stderr."""

  def plan(*argv):
    code = main.main(["plan", *argv])
    return code, *capsys.readouterr()

  return plan


@pytest.fixture
def configs(tmp_path):
  """Writes a config.json like that of a model here; returns its path."""

  def write(name, source="qwen3-8b", **fields):
    values = json.loads((CONFIGS / source / "config.json").read_text())
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps(values | fields))
    return str(path)

  return write
