"""`--quantize`, for both models of a command."""

import io

import pytest

import specdec_jax as sd
from specdec_jax.cli import main as dispatcher

BRIEF = ("--prompt=def f(x):", "--max_new_tokens=12", "--num_draft_tokens=3")


@pytest.fixture
def loaded(monkeypatch):
  """The networks of the models that are loaded."""
  seen = []
  load = sd.load

  def watch(source, **kwargs):
    seen.append(load(source, **kwargs))
    return seen[-1]

  monkeypatch.setattr(sd, "load", watch)
  return seen


def test_it_is_of_both_models(generate, loaded):
  (result,) = generate.json(*BRIEF, "--quantize=int8")
  draft, target = loaded
  assert draft.network.quantize == target.network.quantize == "int8"
  assert result["tokens"]
  loaded.clear()
  generate.json(*BRIEF)
  assert [model.network.quantize for model in loaded] == [None, None]


def test_chat_has_it(capsys, monkeypatch, loaded, target, draft):
  monkeypatch.setattr("sys.stdin", io.StringIO("/quit"))
  models = (f"--target={target}", f"--draft={draft}", "--dtype=float32")
  assert dispatcher.main(["chat", *models, "--quantize=int8"]) == 0
  assert [model.network.quantize for model in loaded] == ["int8", "int8"]


def test_results_of_other_weights_are_not_gone_on_with(generate, tmp_path):
  output = f"--output={tmp_path / 'results.jsonl'}"
  code, _, _ = generate(*BRIEF, output)
  assert code == 0
  error = generate.refused(*BRIEF, output, "--quantize=int8")
  assert "other models or settings" in error


@pytest.mark.parametrize("command", ["generate", "chat"])
def test_the_help_says_what_it_costs(capsys, command):
  assert dispatcher.main([command, "--help"]) == 0
  text = " ".join(capsys.readouterr().out.split())
  assert "the quantised target's distribution, not the original's" in text
