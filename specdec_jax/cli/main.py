"""The `specdec` command: hands over to the module of the command named."""

import importlib
import importlib.metadata
import sys
from collections.abc import Sequence

# A command is the module of its name in this folder, imported when it is run,
# with a function `main(argv) -> int | None` that returns the exit code. As for
# any program, argv[0] is the program's name, here "specdec <command>".
COMMANDS = {
  "generate": "write text with a target and a draft",
  "chat": "talk with a model",
  "audit": "certify that a pair is lossless on this machine",
  "train": "train a draft, or a model",
  "plan": "tell whether a pair fits a TPU slice, and what it brings there",
  "bench": "measure how fast a pair is, and which settings are fastest",
  "convert": "write a model as safetensors or as an orbax checkpoint",
}


def main(argv: Sequence[str] | None = None) -> int:
  """Runs one command.

  Args:
    argv: what follows the program's name; by default the process's arguments.

  Returns:
    The exit code: the command's own, or 2 where no command could be run.
  """
  args = list(sys.argv[1:] if argv is None else argv)
  name = args[0] if args else None
  if name in ("-h", "--help", "help"):
    print(_usage())
    return 0
  if name == "--version":
    print(f"specdec {importlib.metadata.version('specdec-jax')}")
    return 0
  if name not in COMMANDS:
    wrong = "no command given" if name is None else f"unknown command {name!r}"
    known = ", ".join(COMMANDS)
    print(f"specdec: {wrong}; commands: {known}", file=sys.stderr)
    return 2
  command = importlib.import_module(f"specdec_jax.cli.{name}")
  return command.main([f"specdec {name}", *args[1:]]) or 0


def _usage() -> str:
  width = max(map(len, COMMANDS))
  commands = (f"  {name:{width}}  {does}" for name, does in COMMANDS.items())
  return "\n".join(
    [
      "usage: specdec <command> [flags]",
      "       specdec <command> --help",
      "       specdec --version",
      "",
      "Lossless speculative decoding for JAX.",
      "",
      "commands:",
      *commands,
    ]
  )


if __name__ == "__main__":
  sys.exit(main())
