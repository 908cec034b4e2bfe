"""launch/demo.sh, with a program in the place of specdec that only listens."""

import itertools
import json
import os
import pathlib
import subprocess
import sys

import pytest

from specdec_jax.cli import generate_options
from specdec_jax.cli.job import ALONE

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def demo(tmp_path):
  """Runs it; returns exit code, stdout, and what specdec was told and piped."""
  programs = tmp_path / "venv" / "bin"
  programs.mkdir(parents=True)
  heard = tmp_path / "heard.jsonl"
  listen = (
    "import json, sys\n"
    "piped = sys.stdin.read() if sys.argv[-1] == '-' else ''\n"
    f"with open({str(heard)!r}, 'a') as file:\n"
    "  print(json.dumps([sys.argv[1:], piped]), file=file)"
  )
  for name, does in (("specdec", listen), ("pip", "")):
    (programs / name).write_text(f"#!{sys.executable}\n{does}\n")
    (programs / name).chmod(0o755)
  # Newer than pyproject.toml: nothing is left to be installed.
  (tmp_path / "venv" / "specdec-installed").touch()

  def run(*models, cwd=tmp_path):
    done = subprocess.run(
      [ROOT / "launch" / "demo.sh", *models],
      cwd=cwd,
      env={**os.environ, "VENV": str(tmp_path / "venv")},
      capture_output=True,
      text=True,
    )
    lines = heard.read_text().splitlines() if heard.exists() else []
    return done.returncode, done.stdout, [json.loads(line) for line in lines]

  return run


def _options(argv):
  assert generate_options.parse(argv)
  return generate_options.read_options(ALONE)


def test_without_arguments_it_is_the_embedded_pair(demo, monkeypatch):
  code, out, told = demo()
  assert code == 0
  monkeypatch.chdir(ROOT)
  (first, piped), *compared = told
  plain = flags(first)
  assert plain["drafter"] == "none" and plain["prompts_file"] == "-"
  greedy, sampled = ((_options(argv), flags(argv)) for argv, _ in compared)
  for options, given in (greedy, sampled):
    assert not given.keys() & {"target", "draft"}
    assert given["max_new_tokens"] == plain["max_new_tokens"]
    assert options.compare and len(options.prompts) == 5
    assert options.prompts[0].text == json.loads(piped)["prompt"]
  assert "temperature" not in greedy[1]
  assert sampled[1]["temperature"] == "0.8"
  assert out.count("###") == 4


def test_a_pair_is_named_from_where_the_caller_stands(demo, tmp_path):
  (tmp_path / "here").mkdir()
  code, _, ((argv, _),) = demo("here", "hub/draft")
  assert code == 0
  assert flags(argv)["target"] == str(tmp_path / "here")
  assert flags(argv)["draft"] == "hub/draft"
  assert "--compare" in argv


def test_a_target_alone_looks_up(demo):
  code, _, ((argv, _),) = demo("hub/target")
  assert code == 0
  assert flags(argv)["drafter"] == "lookup"


@pytest.mark.parametrize("arguments", [["-h"], ["a", "b", "c"]])
def test_other_arguments_are_told_the_usage(demo, arguments):
  assert demo(*arguments) == (2, "", [])


def flags(argv):
  """Names and values of flags given as `--name value`."""
  return {
    name.removeprefix("--"): value
    for name, value in itertools.pairwise(argv)
    if name.startswith("--")
  }
