import json

import pytest

import specdec_jax as sd
from specdec_jax.cli import convert, main
from specdec_jax.loading import loader
from tests.cli.tiny_checkpoint import save_checkpoint


@pytest.fixture
def run(capsys):
  """Runs the command; returns its exit code, stdout and stderr."""

  def run(*argv):
    code = main.main(["convert", *argv])
    return code, *capsys.readouterr()

  return run


@pytest.fixture
def source(tmp_path):
  return save_checkpoint(tmp_path / "source", generation={"top_k": 3})


def test_converts_and_says_what_it_wrote(run, source, tmp_path):
  target = tmp_path / "a" / "b"
  code, out, err = run(f"--source={source}", f"--output={target}")
  assert (code, err) == (0, "")
  assert out == f"wrote {target}: 12 tensors, 0.0 MB in float32\n"
  model = sd.load(target)
  assert model.generation_config == {"top_k": 3}
  assert model.tokenizer.encode("ab") == sd.load(source).tokenizer.encode("ab")


def test_flags_reach_the_export(run, source, tmp_path, monkeypatch):
  seen = {}

  def export(source, folder, **kwargs):
    seen.update(kwargs, source=source.name, folder=folder)
    raise ValueError("seen")

  monkeypatch.setattr(convert, "export", export)
  argv = [f"--source={source}", f"--output={tmp_path / 'a'}"]
  expected = {"source": str(source), "folder": tmp_path / "a"}
  run(*argv, "--format=orbax", "--dtype=float32")
  assert seen == expected | {
    "form": "orbax",
    "dtype": "float32",
    "max_shard_bytes": 5 * 10**9,
  }
  run(*argv, "--max_shard_size=1.5MB")
  assert seen["max_shard_bytes"] == 1_500_000
  assert seen["dtype"] is None


def refused(run, *argv):
  """The one line that tells why."""
  code, out, err = run(*argv)
  assert (code, out) == (2, "")
  assert err.startswith("specdec convert: error: ")
  assert err.count("\n") == 1
  return err


@pytest.mark.parametrize(
  "argv, reason",
  [
    ([], "--source: expected a model, got none"),
    (["--source=x"], "--output: expected a folder, got none"),
    (["--source=x", "--output=y", "z"], "unexpected argument 'z'"),
    (["--source=x", "--output=y", "--format=gguf"], "gguf"),
    (["--source=x", "--output=y", "--max_shard_size=5"], "500MB or 5GB"),
    (["--source=x", "--output=y", "--max_shard_size=0GB"], "500MB or 5GB"),
    (
      ["--source=x", "--output=y", "--format=orbax", "--max_shard_size=5GB"],
      "is not for --format=orbax",
    ),
    (["--source=./x", "--output=y"], "no such folder: ./x"),
  ],
)
def test_bad_flags(run, argv, reason):
  assert reason in refused(run, *argv)


def test_a_folder_in_use(run, source):
  assert "is in use" in refused(run, f"--source={source}", f"--output={source}")


@pytest.mark.parametrize("data", [b"", b"GGUF", b"GGUF\3\0\0\0" + b"\xff" * 16])
def test_broken_files(run, tmp_path, data):
  path = tmp_path / "model.gguf"
  path.write_bytes(data)
  argv = f"--source={path}", f"--output={tmp_path / 'a'}"
  assert str(path) in refused(run, *argv)


def test_help(run, monkeypatch):
  monkeypatch.setattr(loader, "open_source", None)
  code, out, _ = run("--help")
  assert code == 0
  assert all(f"--{name}" in out for name in convert.FLAGS)
  assert max(map(len, out.splitlines())) < 80


def test_config_says_the_dtype_once(run, source, tmp_path):
  path = source / "config.json"
  fields = json.loads(path.read_text()) | {"torch_dtype": "float32"}
  path.write_text(json.dumps(fields))
  target = tmp_path / "a"
  run(f"--source={source}", f"--output={target}", "--dtype=bfloat16")
  written = json.loads((target / "config.json").read_text())
  assert written["dtype"] == "bfloat16"
  assert "torch_dtype" not in written
