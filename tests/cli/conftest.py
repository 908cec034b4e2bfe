"""Runs the command on tiny checkpoints."""

import io
import json

import pytest

from specdec_jax.cli import main as dispatcher
from specdec_jax.loading import embedded
from tests.cli.tiny_checkpoint import save_checkpoint


class Tty(io.StringIO):
  """A terminal that remembers what it was told."""

  encoding = "utf-8"

  def isatty(self):
    return True


@pytest.fixture(scope="session")
def target(tmp_path_factory):
  return save_checkpoint(
    tmp_path_factory.mktemp("models") / "target",
    generation={
      "do_sample": True,
      "temperature": 0.5,
      "top_k": 20,
      "repetition_penalty": 1.1,
    },
  )


@pytest.fixture(scope="session")
def draft(tmp_path_factory):
  """A draft that guesses right now and then."""
  return save_checkpoint(
    tmp_path_factory.mktemp("models") / "draft",
    noise=0.05,
    max_position_embeddings=64,
  )


@pytest.fixture
def embedded_pair(tmp_path, monkeypatch, target, draft):
  """Lets the two stand for the pair that comes with the package."""
  folder = tmp_path / "pycode"
  folder.mkdir()
  (folder / "target").symlink_to(target)
  (folder / "draft").symlink_to(draft)
  monkeypatch.setattr(embedded, "_ROOTS", (tmp_path,))


class Command:
  """Runs `specdec generate` in this process."""

  def __init__(self, capsys, target, draft):
    self._capsys = capsys
    self._models = [f"--target={target}", f"--draft={draft}"]

  def __call__(self, *flags, models=True):
    """Returns exit code, stdout and stderr."""
    begin = [*self._models, "--dtype=float32"] if models else []
    self._capsys.readouterr()
    code = dispatcher.main(["generate", *begin, *flags])
    return code, *self._capsys.readouterr()

  def json(self, *flags):
    """Runs it with --json; returns the objects."""
    code, out, _ = self("--json", *flags)
    assert code == 0
    return [json.loads(line) for line in out.splitlines()]

  def refused(self, *flags, models=True):
    """Expects a one-line error; returns it."""
    code, out, err = self(*flags, models=models)
    assert (code, out) == (2, "")
    errors = [line for line in err.splitlines() if not line.startswith("note:")]
    assert len(errors) == 1
    assert errors[0].startswith("specdec generate: error: ")
    return errors[0].removeprefix("specdec generate: error: ")


@pytest.fixture
def generate(capsys, target, draft):
  return Command(capsys, target, draft)


@pytest.fixture
def write(tmp_path):
  """Writes a file and returns its path."""

  def write(content, name="prompts.jsonl"):
    path = tmp_path / name
    data = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(data)
    return str(path)

  return write


@pytest.fixture
def prompts(write):
  lines = [{"prompt": "ab"}, {"turns": ["def f(x):", "?"]}, {"prompt": "c" * 9}]
  return write("\n".join(map(json.dumps, lines)))


@pytest.fixture
def tty(monkeypatch):
  """A terminal to redirect standard output to."""
  monkeypatch.setenv("TERM", "xterm-256color")
  monkeypatch.delenv("NO_COLOR", raising=False)
  return Tty()
