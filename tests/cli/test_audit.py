"""`specdec audit`: exit codes, JSON, the page, and what it refuses."""

import inspect
import json

import pytest

import specdec_jax as sd
from specdec_jax.audit import Audit, Check
from specdec_jax.cli import audit as command
from specdec_jax.cli import main as dispatcher


@pytest.fixture
def run(capsys, target, draft):
  def run(*flags, models=True):
    begin = [f"--target={target}", f"--draft={draft}", "--dtype=float32"]
    code = dispatcher.main(["audit", *(begin if models else []), *flags])
    return code, *capsys.readouterr()

  return run


@pytest.fixture
def audited(monkeypatch):
  """Puts a verdict in the place of the audit; returns what that was asked."""
  asked = {}

  def put(*checks):
    signature = inspect.signature(command.audit.audit)

    def audit(*args, **options):
      asked.update(signature.bind(*args, **options).arguments)
      return Audit({"target": "<b>x</b>"}, checks, 1e-3, 1.0)

    monkeypatch.setattr(command.audit, "audit", audit)
    return asked

  return put


FINE = Check("law", True, "all is well", {"n": 1})
WRONG = Check("law", False, "\x1b it <script>is</script> not", {}, ("rule",))


def test_json(run, audited, write):
  asked = audited(FINE)
  prompts = write("ab\ndef f(x):\ncc\n", "prompts.txt")
  code, out, _ = run(
    "--json",
    f"--prompts_file={prompts}",
    "--num_prompts=2",
    "--drafter=lookup",
    "--rule=token",
  )
  found = json.loads(out)
  assert (code, found["passed"], found["parts"]) == (0, True, [])
  assert found["checks"][0]["evidence"] == {"n": 1}
  assert asked["prompts"] == ["ab", "def f(x):"]
  assert isinstance(asked["drafter"], sd.PromptLookup)
  assert asked["rule"] == sd.TokenRule()


def test_what_fails_is_told_and_exits_with_1(run, audited, tmp_path):
  audited(FINE, WRONG)
  page = tmp_path / "audit.html"
  code, out, _ = run(f"--report={page}")
  assert code == 1
  *_, wrong, verdict = out.splitlines()
  assert wrong == "FAIL  law  \\x1b it <script>is</script> not"
  assert verdict == "FAIL: rule"
  text = page.read_text()
  assert "<script>" not in text
  assert "&lt;script&gt;" in text


def test_flags_reach_the_audit(run, audited):
  asked = audited(FINE)
  code, out, _ = run("--seed=7", "--num_samples=300", "--num_prompts=3")
  assert (code, out.splitlines()[-1]) == (0, "PASS")
  assert (asked["seed"], asked["num_samples"]) == (7, 300)
  assert len(asked["prompts"]) == 3
  assert asked["drafter"].num_draft_tokens == 4


def test_ctrl_c_ends_it(run, monkeypatch):
  def interrupt(*_, **__):
    raise KeyboardInterrupt

  monkeypatch.setattr(command.audit, "audit", interrupt)
  assert run()[0] == 130


@pytest.mark.parametrize(
  "flags, message",
  [
    (["--drafter=none"], "nothing to audit"),
    (["--num_samples=5"], "num_samples: expected at least 100, got 5"),
    (["--seed=-1"], "seed: expected an integer in [0, 2**32), got -1"),
    (["--num_prompts=0"], "--num_prompts: expected at least 1, got 0"),
    (["--prompts_file="], "--prompts_file: expected a path, got nothing"),
    (["--prompts_file=nowhere"], "nowhere: No such file"),
    (["--report=nowhere/a.html"], "--report: no such folder: nowhere"),
    (["--report="], "--report: expected a path, got nothing"),
    (["--rule=best"], "--rule: expected one of"),
    (["word"], "unexpected argument"),
  ],
)
def test_bad_input_is_told_in_a_line(run, flags, message):
  code, out, err = run(*flags)
  assert (code, out) == (2, "")
  (line,) = err.splitlines()
  assert line.startswith("specdec audit: error: ")
  assert message in line
