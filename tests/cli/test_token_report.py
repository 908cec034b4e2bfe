"""`specdec generate --report`."""

import json

import pytest

import specdec_jax as sd
from specdec_jax.visible import sanitize
from tests.report.test_tokens import Tree, shown

SHORT = ("--prompt=def <b>f(x):", "--max_new_tokens=12", "--num_draft_tokens=3")


@pytest.fixture
def page(tmp_path):
  return tmp_path / "page.html"


def test_it_shows_the_text(generate, page):
  code, out, err = generate(*SHORT, f"--report={page}")
  assert code == 0
  assert err == f"note: each block is shown in {page}\n"
  (result,) = generate.json(*SHORT)
  assert out.startswith(sanitize(result["text"]))
  tree = Tree(page.read_text())
  stats = result["stats"]
  assert len(tree.classes("number")) == stats["target_passes"]
  assert len(shown(tree, "kept")) == stats["accepted_tokens"]
  # What a terminal cannot show, a page cannot either.
  assert tree.classes("prompt") == ["def <b>f(x):"]
  told = tree.classes("settings")[0]
  for word in ("num draft tokens3", "ruleblock", "temperature0.0", "seed0"):
    assert word in told


def test_it_shows_all_texts(generate, page, prompts):
  flags = (f"--prompts_file={prompts}", "--batch_size=2", "--num_samples=2")
  code, *_ = generate(*flags, *SHORT[1:], "--top_k=5", f"--report={page}")
  assert code == 0
  tree = Tree(page.read_text())
  assert len(tree.classes("generation")) == 6
  assert "top k5" in tree.classes("settings")[0]


def test_json_goes_to_stdout_and_the_page_to_its_file(generate, page):
  (result,) = generate.json(*SHORT, f"--report={page}")
  assert len(result["tokens"]) == 12
  assert page.exists()


def test_a_comparison_is_made_without_a_trace(generate, page, monkeypatch):
  traced = []
  start = sd.SpeculativeDecoder.start

  def watch(self, *arguments, **options):
    traced.append(options["trace"])
    return start(self, *arguments, **options)

  monkeypatch.setattr(sd.SpeculativeDecoder, "start", watch)
  code, out, _ = generate(*SHORT, "--compare", f"--report={page}")
  assert code == 0
  assert "identical" in out
  assert traced[0] and not any(traced[1:])
  assert page.exists()


@pytest.fixture
def interrupted(monkeypatch):
  """Ctrl-C as the second block of the process runs."""
  calls = []
  advance = sd.Generation.advance

  def press(self, blocks=None):
    calls.append(blocks)
    if len(calls) == 2:
      raise KeyboardInterrupt
    advance(self, blocks)

  monkeypatch.setattr(sd.Generation, "advance", press)


def test_ctrl_c_keeps_what_there_is(generate, page, prompts, interrupted):
  code, _, err = generate(
    f"--prompts_file={prompts}", *SHORT[1:], f"--report={page}"
  )
  assert code == 130
  assert f"note: each block is shown in {page}\n" in err
  tree = Tree(page.read_text())
  assert "interrupted" in "".join(tree.classes("figures"))
  assert tree.classes("generation") == []  # one text alone had begun


def test_ctrl_c_before_anything_leaves_the_old_page(
  generate, page, monkeypatch
):
  def interrupt(*arguments, **options):
    raise KeyboardInterrupt

  page.write_text("old")
  monkeypatch.setattr(sd.SpeculativeDecoder, "start", interrupt)
  code, _, err = generate(*SHORT, f"--report={page}")
  assert code == 130
  assert "is shown in" not in err
  assert page.read_text() == "old"


@pytest.mark.parametrize(
  "path, message",
  [
    ("", "--report: expected a path, got nothing"),
    (".", "--report: expected a file, got a folder: ."),
    ("no/page.html", "--report: no such folder: no"),
  ],
)
def test_paths_are_checked_before_models_are_loaded(generate, path, message):
  flags = ("--target=no-such-model", SHORT[0], f"--report={path}")
  assert generate.refused(*flags, models=False) == message


def test_a_file_that_goes_on_has_no_page(generate, page):
  message = generate.refused(*SHORT, "--output=x.jsonl", f"--report={page}")
  assert message == "--report does not go with --output; leave one of them out"


def test_no_trace_without_a_page(generate, monkeypatch):
  traced = []
  start = sd.SpeculativeDecoder.start

  def watch(self, *arguments, **options):
    traced.append(options["trace"])
    return start(self, *arguments, **options)

  monkeypatch.setattr(sd.SpeculativeDecoder, "start", watch)
  _, out, _ = generate("--json", *SHORT)
  assert json.loads(out) and traced == [False]
