import signal
import warnings

import pytest
from absl import flags

from specdec_jax.cli import command


@pytest.fixture
def values():
  values = command.new_flags()
  flags.DEFINE_integer("k", 3, "How many.", flag_values=values)
  flags.DEFINE_bool("a_flag_with_a_long_name", False, "X.", flag_values=values)
  return values


def _parse(values, *argv):
  names = ("k", "a_flag_with_a_long_name")
  holders = [flags.FlagHolder(values, values[name], True) for name in names]
  return command.parse(values, ["x", *argv], "About.", {"group": holders})


def test_flags_of_an_earlier_call_are_forgotten(values):
  assert _parse(values, "--k=5")
  assert values.k == 5
  assert _parse(values)
  assert values.k == 3


def test_an_argument_that_is_no_flag_is_refused(values):
  with pytest.raises(ValueError, match="unexpected argument 'b'"):
    _parse(values, "--k=5", "b")


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_shows_defaults_and_ends_the_command(values, capsys, flag):
  assert not _parse(values, flag)
  text = capsys.readouterr().out
  assert text.startswith("About.\n\ngroup:\n")
  assert "  --k                   How many. (default: 3)\n" in text
  assert f"--a_flag_with_a_long_name\n{'':24}X.\n" in text
  assert text.endswith("\nhelp:\n  --help                Show this help.\n")


@pytest.mark.parametrize(
  "error, code, message",
  [
    (ValueError("a\n  b"), 2, "error: a b"),
    (ValueError("\x1b[2J"), 2, r"error: \x1b[2J"),
    (flags.Error("c"), 2, "error: c"),
    (FileNotFoundError(2, "Not there", "f"), 2, "error: f: Not there"),
    (OSError("odd"), 2, "error: odd"),
    (MemoryError("8 EiB"), 2, "error: out of memory: 8 EiB"),
    (
      RuntimeError("RESOURCE_EXHAUSTED: 8 EiB"),
      2,
      "error: out of memory: RESOURCE_EXHAUSTED: 8 EiB",
    ),
    (KeyboardInterrupt(), 130, "interrupted"),
  ],
)
def test_what_goes_wrong_is_told_in_one_line(capsys, error, code, message):
  def body():
    raise error

  assert command.run("name", body) == code
  assert capsys.readouterr() == ("", f"name: {message}\n")


@pytest.mark.parametrize("error", [ZeroDivisionError, RuntimeError("x")])
def test_a_fault_of_the_program_keeps_its_traceback(error):
  def body():
    raise error

  with pytest.raises((ZeroDivisionError, RuntimeError)):
    command.run("name", body)


def test_a_warning_is_shown_once_in_one_line(capsys):
  def body():
    for length in (100, 200):
      warnings.warn(f"too\nlong: {length}", stacklevel=1)
    return 0

  assert command.run("name", body) == 0
  assert capsys.readouterr().err == "name: warning: too long: 100\n"


def test_ctrl_c_waits_for_the_end_of_the_block():
  reached = False
  with pytest.raises(KeyboardInterrupt), command.ctrl_c_waits():
    signal.raise_signal(signal.SIGINT)
    reached = True
  assert reached
  assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_ignored_ctrl_c_stays_ignored():
  before = signal.signal(signal.SIGINT, signal.SIG_IGN)
  try:
    with command.ctrl_c_waits():
      signal.raise_signal(signal.SIGINT)
  finally:
    signal.signal(signal.SIGINT, before)
