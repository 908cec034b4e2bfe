"""`specdec bench` on tiny checkpoints."""

import builtins
import json

import pytest

from specdec_jax.bench import measure
from specdec_jax.cli import main as dispatcher

SHORT = ("--max_new_tokens=8", "--num_draft_tokens=3", "--rounds=2")


@pytest.fixture
def bench(capsys, target, draft, prompts):
  """Runs `specdec bench`; returns exit code, stdout and stderr."""

  def run(*flags, file=prompts):
    capsys.readouterr()
    models = [f"--target={target}", f"--draft={draft}", "--dtype=float32"]
    code = dispatcher.main(
      ["bench", *models, f"--prompts_file={file}", *SHORT, *flags]
    )
    return code, *capsys.readouterr()

  return run


@pytest.fixture
def refused(bench):
  """Expects an error before anything is measured; returns it."""

  def run(*flags, **values):
    code, out, err = bench(*flags, **values)
    assert (code, out) == (2, "")
    return err.removeprefix("specdec bench: error: ")

  return run


def test_measures_every_cell_and_goes_on(bench, tmp_path, monkeypatch):
  folder = tmp_path / "results"
  flags = ("--drafters=model,lookup", f"--output={folder}", "--json")
  real = measure.Meter.measure

  def interrupted(self, unit, timed):
    if unit.number == 1:
      raise KeyboardInterrupt
    return real(self, unit, timed)

  with monkeypatch.context() as patch:
    patch.setattr(measure.Meter, "measure", interrupted)
    code, out, err = bench(*flags)
  assert code == 130
  assert "interrupted; the same command goes on" in err
  partly = json.loads(out)
  assert partly["cells"][0]["total"]["prompts"] == 1
  begun = (folder / "records.jsonl").read_bytes()

  code, out, err = bench(*flags)
  assert code == 0
  assert "holds 1 of 3 parts already" in err
  assert (folder / "records.jsonl").read_bytes().startswith(begun)
  summary = json.loads(out)
  assert [it["name"] for it in summary["cells"]] == [
    *("plain", "model K=3", "lookup K=3")
  ]
  for it in summary["cells"]:
    assert it["total"]["prompts"] == 3
    assert it["total"]["new_tokens"] <= 3 * 2 * 8
    assert it["time"]["verify"] > 0
  assert summary["cells"][1]["identity"]["identical"] == 3
  assert summary["cells"][1]["prediction"]["speedup"] > 0

  # All is there: nothing is loaded, and tables come of it.
  monkeypatch.setattr(measure, "Meter", None)
  code, out, _ = bench(*flags[:2], "--suggest", "--limit=3")
  assert code == 0
  for text in ("temperature 0", "model K=3", "v(T)", "3/3", "  use: --target="):
    assert text in out


def test_a_fault_fails(bench, monkeypatch):
  found = measure.Difference("p", 0, 2.5, False)
  monkeypatch.setattr(
    measure.Meter, "_difference", lambda *_: iter([found] * 1)
  )
  code, out, _ = bench("--drafters=lookup", "--limit=1", "--rounds=1")
  assert code == 1
  assert "FAULTS 1" in out
  assert "FAULT: lookup K=3, temperature 0, batch 1, p: new token 1 is" in out


def test_other_settings_are_refused(bench, refused, tmp_path):
  flags = ("--drafters=lookup", "--limit=1", f"--output={tmp_path / 'r'}")
  assert bench(*flags)[0] == 0
  assert "settings.seed was 0, is 1" in refused(*flags, "--seed=1")
  header = tmp_path / "r" / "header.json"
  header.write_text(json.dumps(json.loads(header.read_text()) | {"format": 0}))
  assert "results of format 0, but this version" in refused(*flags)


def test_another_format_names_the_line(refused, write):
  file = write('{"prompt": "a"}\n{"question": "b"}\n')
  error = refused(file=file)
  assert error.startswith(f"{file}, line 2: expected a key `prompt`")


def test_a_peer_without_torch_says_how_to_get_it(refused, monkeypatch):
  real = builtins.__import__

  def without_torch(name, *more):
    if name == "torch":
      raise ImportError("No module named 'torch'")
    return real(name, *more)

  monkeypatch.setattr(builtins, "__import__", without_torch)
  error = refused("--peer=transformers")
  assert "pip install 'specdec_jax[torch]'" in error


@pytest.mark.parametrize(
  "flag, reason",
  [
    ("--drafters=none", "--drafters: expected model or lookup, got 'none'"),
    ("--rules=best", "--rules: rule: expected one of"),
    ("--num_draft_tokens=0", "--num_draft_tokens: expected 1 to 1024, got 0"),
    ("--num_draft_tokens=a", "--num_draft_tokens: expected whole numbers"),
    ("--temperatures=-1", "--temperatures: temperature: expected"),
    ("--temperatures=x", "--temperatures: expected numbers, got 'x'"),
    ("--batch_sizes=0", "--batch_sizes: expected at least 1, got 0"),
    ("--batch_sizes=", "--batch_sizes: expected at least one, got none"),
    ("--prompts_file=", "--prompts_file: expected a file of prompts"),
    ("--output=", "--output: expected a path"),
    ("--report=/no/such/x.html", "--report: no such folder"),
    ("--max_new_tokens=1000", "line 1: 2 tokens and 1000 new ones do not fit"),
  ],
)
def test_bad_input(refused, flag, reason):
  assert reason in refused(flag)


def test_a_limit_of_context_names_the_prompt(refused, write):
  file = write(json.dumps({"prompt": "a" * 300}))
  assert "line 1: 300 tokens, but the context" in refused(file=file)
