"""What runs where no model is named."""

import json

import pytest

import specdec_jax as sd

PROMPT = "--prompt=def f(x):"
BRIEF = "--max_new_tokens=12"
SHORT = (BRIEF, "--num_draft_tokens=3")


@pytest.fixture
def dtypes(monkeypatch):
  """The dtypes that models are loaded with, as they are."""
  seen = []
  load = sd.load

  def watch(source, *, dtype, **options):
    assert options["quantize"] is None
    seen.append((str(source), dtype))
    return load(source, dtype=dtype, **options)

  monkeypatch.setattr(sd, "load", watch)
  return seen


def test_it_is_the_embedded_pair_in_float32(generate, embedded_pair, dtypes):
  (named,) = generate.json(PROMPT, *SHORT)
  dtypes.clear()
  code, out, err = generate("--json", PROMPT, *SHORT, models=False)
  assert code == 0
  assert err == (
    "note: no model named: using embedded:pycode/target and "
    "embedded:pycode/draft\n"
  )
  result = json.loads(out)
  assert result["tokens"] == named["tokens"]
  assert result["stats"] == named["stats"]
  assert sorted(dtypes) == [
    ("embedded:pycode/draft", "float32"),
    ("embedded:pycode/target", "float32"),
  ]


@pytest.mark.parametrize("drafter", ["lookup", "none"])
def test_a_drafter_without_a_model_takes_its_target(
  generate, embedded_pair, dtypes, drafter
):
  code, _, err = generate(PROMPT, BRIEF, f"--drafter={drafter}", models=False)
  assert code == 0
  assert err == "note: no model named: using embedded:pycode/target\n"
  assert dtypes == [("embedded:pycode/target", "float32")]


@pytest.mark.parametrize(
  "model, flags, dtype",
  [
    ("embedded:pycode/target", (), "float32"),
    ("embedded:pycode/target", ("--dtype=bfloat16",), "bfloat16"),
    (None, (), "bfloat16"),
  ],
)
def test_a_named_target_is_alone(
  generate, embedded_pair, dtypes, target, model, flags, dtype
):
  name = model or str(target)
  code, _, err = generate(
    f"--target={name}", PROMPT, BRIEF, *flags, models=False
  )
  assert code == 0
  assert err.startswith("note: plain decoding")
  assert dtypes == [(name, dtype)]


def test_a_draft_alone_is_refused(generate, embedded_pair, draft):
  error = generate.refused(f"--draft={draft}", PROMPT, models=False)
  assert error.startswith("--target: expected a folder or a hub id, got none")
