"""What every command does: parse its flags, show help, end well.

A command keeps its flags in a `FlagValues` of its own, so that no two commands
share a name by accident and nothing outside of them sees a flag.
"""

import contextlib
import os
import signal
import sys
import textwrap
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TextIO

from absl import flags

from specdec_jax.cli import terminal

BAD_INPUT = 2
INTERRUPTED = 130  # 128 + SIGINT, as shells have it
_HELP_COLUMN = 24
_NO_MEMORY = "RESOURCE_EXHAUSTED"  # what XLA calls it, in a RuntimeError
_BROKEN_PIPE = 141  # 128 + SIGPIPE


Groups = Mapping[str, Sequence[flags.FlagHolder]]


def new_flags() -> flags.FlagValues:
  """A command's own flags: --help, and those it defines."""
  values = flags.FlagValues()
  flags.DEFINE_bool(
    "help", False, "Show this help.", short_name="h", flag_values=values
  )
  return values


def parse(
  values: flags.FlagValues, argv: Sequence[str], about: str, groups: Groups
) -> bool:
  """Parses a command's flags, forgetting those of an earlier call.

  Args:
    values: from `new_flags`.
    argv: of the command; argv[0] is its name.
    about: the help's first part.
    groups: the flags in the order of the help.

  Returns:
    Whether there is something to do: not where help was asked for, and has
    been printed.

  Raises:
    flags.Error: a flag is unknown, or its value is of the wrong kind.
    ValueError: there is an argument that is no flag.
  """
  for name in values:
    values[name].unparse()
  _, *rest = values(argv)
  if rest:
    raise ValueError(
      f"unexpected argument {rest[0]!r}; a value of several words must be "
      "quoted"
    )
  if values["help"].value:
    print(_help_text(about, groups, values))
    return False
  return True


def _help_text(about: str, groups: Groups, values: flags.FlagValues) -> str:
  """A command's help: what it is about, then its flags, group by group."""
  lines = [about.strip()]
  named = {
    title: [holder.name for holder in holders]
    for title, holders in groups.items()
  }
  for title, names in (named | {"help": ["help"]}).items():
    lines += ["", f"{title}:"]
    for flag in map(values.__getitem__, names):
      told = flag.default is not None and not flag.boolean
      default = f" (default: {flag.default})" if told else ""
      name = f"  --{flag.name}  "
      if len(name) > _HELP_COLUMN:
        lines.append(name.rstrip())
        name = ""
      lines += textwrap.wrap(
        flag.help + default,
        width=79,
        initial_indent=name.ljust(_HELP_COLUMN),
        subsequent_indent=" " * _HELP_COLUMN,
      )
  return "\n".join(lines)


def run(name: str, body: Callable[[], int]) -> int:
  """Runs a command and tells what went wrong in one line.

  Args:
    name: what messages begin with.
    body: the command; returns its exit code.

  Returns:
    The exit code: that of `body`, 2 for bad input, 130 after Ctrl-C.
  """

  def say(message: str) -> None:
    print(f"{name}: {terminal.one_line(message)}", file=sys.stderr, flush=True)

  # Else it tells of "indexing errors" to come where a prompt is longer than the
  # tokenizer's model_max_length; what does not fit the context is refused here.
  os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
  with _warnings_shown_by(say):
    try:
      code = body()
      sys.stdout.flush()
      return code
    except BrokenPipeError:
      # Nobody reads on. The interpreter flushes at its end: into the void.
      with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
      return _BROKEN_PIPE
    except KeyboardInterrupt:
      say("interrupted")
      return INTERRUPTED
    except (OSError, flags.Error, ValueError) as error:
      say(f"error: {reason(error)}")
      return BAD_INPUT
    except (MemoryError, RuntimeError) as error:
      if not (isinstance(error, MemoryError) or _NO_MEMORY in str(error)):
        raise  # a fault of the program keeps its traceback
      say(f"error: out of memory: {error}")
      return BAD_INPUT


def reason(error: BaseException) -> str:
  """What went wrong."""
  if isinstance(error, OSError) and error.strerror:
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror}"
  return str(error) or type(error).__name__


@contextlib.contextmanager
def _warnings_shown_by(say: Callable[[str], None]) -> Iterator[None]:
  """Shows the library's warnings in one line, once for each place in it."""
  seen: set[tuple[str, int, type[Warning]]] = set()

  def show(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
  ) -> None:
    # By place and not by text: the same warning about the next prompt may
    # have other numbers in it.
    if (filename, lineno, category) not in seen:
      seen.add((filename, lineno, category))
      say(f"warning: {message}")

  with warnings.catch_warnings():
    warnings.simplefilter("always", UserWarning)
    warnings.showwarning = show
    yield


@contextlib.contextmanager
def ctrl_c_waits() -> Iterator[None]:
  """Puts off Ctrl-C until the end of the block.

  A generation's state is donated to the program that advances it. An
  interrupt in between would leave neither the old state nor the new one.
  """
  before = signal.getsignal(signal.SIGINT)
  main = threading.current_thread() is threading.main_thread()
  if not main or before in (None, signal.SIG_IGN):
    yield
    return
  waiting = []
  signal.signal(signal.SIGINT, lambda *_: waiting.append(True))
  try:
    yield
  finally:
    signal.signal(signal.SIGINT, before)
  if waiting:
    raise KeyboardInterrupt
