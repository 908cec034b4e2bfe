import importlib.metadata
import importlib.util

import pytest

from specdec_jax.cli import main as dispatcher


class FakeCommand:
  """Stands for a command's module."""

  def __init__(self, returns):
    self.returns = returns
    self.seen = None

  def main(self, argv):
    self.seen = argv
    return self.returns


@pytest.fixture
def run_fake(monkeypatch):
  def run(command, argv):
    monkeypatch.setattr(
      dispatcher.importlib, "import_module", {FAKE: command}.__getitem__
    )
    return dispatcher.main(argv)

  return run


FAKE = "specdec_jax.cli.generate"


@pytest.mark.parametrize("returns, code", [(None, 0), (0, 0), (2, 2)])
def test_hands_over_the_arguments_and_the_exit_code(run_fake, returns, code):
  command = FakeCommand(returns)
  assert run_fake(command, ["generate", "--top_k", "3", "--version"]) == code
  assert command.seen == ["specdec generate", "--top_k", "3", "--version"]


@pytest.mark.parametrize("name", dispatcher.COMMANDS)
def test_every_command_listed_has_a_module(name):
  assert importlib.util.find_spec(f"specdec_jax.cli.{name}")


@pytest.mark.parametrize("flag", ["-h", "--help", "help"])
def test_help_lists_the_commands(capsys, flag):
  assert dispatcher.main([flag]) == 0
  out = capsys.readouterr().out
  assert all(name in out for name in dispatcher.COMMANDS)


def test_version_is_that_of_the_distribution(capsys):
  assert dispatcher.main(["--version"]) == 0
  version = importlib.metadata.version("specdec-jax")
  assert capsys.readouterr().out == f"specdec {version}\n"


@pytest.mark.parametrize("argv", [[], ["genrate"], ["--flag"], ["main"]])
def test_an_unknown_command_is_a_one_line_error(capsys, argv):
  assert dispatcher.main(argv) == 2
  captured = capsys.readouterr()
  assert captured.out == ""
  assert captured.err.count("\n") == 1
  assert "generate" in captured.err


def test_arguments_default_to_those_of_the_process(monkeypatch, capsys):
  monkeypatch.setattr("sys.argv", ["specdec", "--help"])
  assert dispatcher.main() == 0
  assert "usage" in capsys.readouterr().out
