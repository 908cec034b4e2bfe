"""`specdec train` with a student that is a part of a model."""

import json

import numpy as np
import pytest

import specdec_jax as sd
from specdec_jax.cli import main
from tests import tiny

_WHOLE = "takes a part of a model; name it with --student"


@pytest.fixture
def model(tmp_path):
  path = tmp_path / "model"
  path.mkdir()
  tiny.save(path, "llama-tied")
  tiny.save_tokenizer(path, 32)
  return path


@pytest.fixture
def texts(tmp_path):
  """Words of which w3 to w9 are frequent."""
  words = [f"w{i}" for i in np.random.default_rng(0).integers(3, 10, 400)]
  path = tmp_path / "texts"
  path.mkdir()
  for i in range(4):
    text = " ".join(words[100 * i : 100 * (i + 1)])
    (path / f"{i}.txt").write_text(text)
  return path


@pytest.fixture
def train(tmp_path, capsys):
  def run(*flags):
    capsys.readouterr()
    code = main.main(["train", f"--output={tmp_path / 'out'}", *flags])
    return code, capsys.readouterr().err

  return run


def test_zero_steps_write_the_pruned_model(train, model, texts, tmp_path):
  flags = [f"--student={model}", "--steps=0", "--keep_layers=1"]
  code, err = train(*flags, f"--data={texts}", "--draft_vocab=8")
  assert code == 0, err
  fields = json.loads((tmp_path / "out" / "config.json").read_text())
  assert fields["num_hidden_layers"] == 1
  assert fields["draft_vocab_size"] == 8
  assert fields["tie_word_embeddings"] is False
  pruned = sd.load(tmp_path / "out", dtype="float32")
  full = sd.load(model, dtype="float32")
  ids = np.asarray(pruned.params["draft_vocab_ids"])
  assert ids.tolist() == [3, 4, 5, 6, 7, 8, 9, 31]
  assert pruned.eos_ids == full.eos_ids
  np.testing.assert_array_equal(
    pruned.params["head.weight"], full.params["embed.weight"][ids]
  )
  np.testing.assert_array_equal(
    pruned.params["layers.0.mlp.up.weight"],
    full.params["layers.1.mlp.up.weight"],
  )
  code, err = train(*flags)
  assert code == 2 and "is in use" in err


def test_layers_need_no_data(train, model, tmp_path):
  code, err = train(f"--student={model}", "--keep_layers=1,0", "--steps=0")
  assert code == 0, err
  assert sd.load(tmp_path / "out").network.config.num_layers == 2


def test_what_is_written_has_the_type_that_was_asked_for(
  train, model, tmp_path
):
  code, err = train(f"--student={model}", "--steps=0", "--dtype=bfloat16")
  assert code == 0, err
  fields = json.loads((tmp_path / "out" / "config.json").read_text())
  assert fields["dtype"] == "bfloat16"


@pytest.mark.parametrize(
  "flag", ["--loss=forward_kl", "--teacher=x", "--learning_rate=1", "--data=x"]
)
def test_flags_of_a_training_are_refused_without_one(train, model, flag):
  code, err = train(f"--student={model}", "--steps=0", flag)
  name = flag.partition("=")[0]
  assert code == 2
  assert err == (
    f"specdec train: error: {name}: nothing is trained with --steps=0; leave "
    "it out\n"
  )


def test_a_pruned_student_is_trained(train, model, texts, tmp_path):
  flags = [
    f"--student={model}",
    f"--teacher={model}",
    f"--data={texts}",
    "--keep_layers=0",
    "--draft_vocab=8",
    "--sequence_length=16",
    "--batch_size=4",
    "--evaluate_every=2",
    "--warmup_steps=0",
  ]
  code, err = train(*flags, "--steps=4")
  assert code == 0, err
  trained = sd.load(tmp_path / "out", dtype="float32")
  ids = np.asarray(trained.params["draft_vocab_ids"]).tolist()
  assert ids == [3, 4, 5, 6, 7, 8, 9, 31]
  full = sd.load(model, dtype="float32")
  before = full.params["embed.weight"][np.array(ids)]
  assert (np.asarray(trained.params["head.weight"]) != before).any()
  path = tmp_path / "out" / "training" / "metrics.jsonl"
  lines = [json.loads(line) for line in path.read_text().splitlines()]
  scores = [line["held_out"] for line in lines if "held_out" in line]
  assert len(scores) == 2
  assert all(0 < score["acceptance"] < 1 for score in scores)
  assert all(1 <= score["tokens_per_target_pass"] <= 5 for score in scores)
  code, err = train(*flags, "--steps=4")  # nothing is left to do
  assert code == 0, err
  assert path.read_text().splitlines() == list(map(json.dumps, lines))


@pytest.mark.parametrize(
  "flags, message",
  [
    (["--config=c", "--tokenizer=t", "--keep_layers=0"], _WHOLE),
    (["--config=c", "--tokenizer=t", "--draft_vocab=8"], _WHOLE),
    (["--student", "--keep_layers="], "layers of 0 to 1, .* got none"),
    (["--student", "--keep_layers=0,2"], "layers of 0 to 1, .* got 0, 2"),
    (["--student", "--keep_layers=0,0"], "layers of 0 to 1, .* got 0, 0"),
    (["--student", "--keep_layers=a"], "expected numbers like 0,2,5, got a"),
    (["--student", "--draft_vocab=0"], "expected 1 to 32 tokens, .* got 0"),
    (["--student", "--draft_vocab=33"], "expected 1 to 32 tokens, .* got 33"),
    (["--student", "--steps=-1"], "steps"),
  ],
)
def test_what_cannot_be_is_refused(
  train, model, texts, tmp_path, flags, message
):
  named = [f"{f}={model}" if f == "--student" else f for f in flags]
  counted = any("draft_vocab" in flag for flag in flags)
  data = [f"--data={texts}"] if counted else []
  code, err = train("--steps=0", *data, *named)
  assert code == 2
  with pytest.raises(ValueError, match=message):
    raise ValueError(err.strip())
  assert not (tmp_path / "out").exists()


def test_counts_need_data(train, model):
  code, err = train(f"--student={model}", "--draft_vocab=8", "--steps=0")
  assert code == 2 and "--data: expected files or folders" in err
