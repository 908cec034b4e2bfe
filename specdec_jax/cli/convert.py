"""`specdec convert`: writes a model in another format."""

import re
from collections.abc import Sequence
from pathlib import Path

from absl import flags

from specdec_jax.cli import command
from specdec_jax.cli.terminal import Terminal
from specdec_jax.loading import loader
from specdec_jax.loading.export import export
from specdec_jax.visible import sanitize

_ABOUT = """
usage: specdec convert --source=MODEL --output=FOLDER [flags]

Writes a model as a folder with safetensors, which transformers reads too, or
with an orbax checkpoint; with it its config.json, its tokenizer and its
generation_config.json.

  specdec convert --source=model.gguf --output=model
  specdec convert --source=model --output=model-orbax --format=orbax

MODEL is a folder with a Hugging Face or an orbax checkpoint, a .gguf file, or
a hub id. The folder appears when all of it is written. The exit code is 0, or
2 after bad input.
"""

FLAGS = command.new_flags()

_SOURCE = flags.DEFINE_string(
  "source", None, "The model to be read.", flag_values=FLAGS
)
_OUTPUT = flags.DEFINE_string(
  "output",
  None,
  "The folder to be written; must be new or empty.",
  flag_values=FLAGS,
)
_FORMAT = flags.DEFINE_enum(
  "format",
  "safetensors",
  ["safetensors", "orbax"],
  "Of the weights.",
  flag_values=FLAGS,
)
_DTYPE = flags.DEFINE_enum(
  "dtype",
  None,
  ["bfloat16", "float32"],
  "Of the weights; by default what they have, or bfloat16 if they are "
  "quantised.",
  flag_values=FLAGS,
)
_MAX_SHARD_SIZE = flags.DEFINE_string(
  "max_shard_size",
  "5GB",
  "The most that a safetensors file holds, in MB or GB.",
  flag_values=FLAGS,
)
_GROUPS = {
  "models": (_SOURCE, _OUTPUT),
  "weights": (_FORMAT, _DTYPE, _MAX_SHARD_SIZE),
}
_UNITS = {"MB": 10**6, "GB": 10**9}


def main(argv: Sequence[str]) -> int:
  """Runs the command; argv[0] is its name. Returns the exit code."""
  return command.run(argv[0], lambda: _convert(argv))


def _convert(argv: Sequence[str]) -> int:
  if not command.parse(FLAGS, argv, _ABOUT, _GROUPS):
    return 0
  if not _SOURCE.value:
    raise ValueError("--source: expected a model, got none")
  if not _OUTPUT.value:
    raise ValueError("--output: expected a folder, got none")
  if _MAX_SHARD_SIZE.present and _FORMAT.value == "orbax":
    raise ValueError("--max_shard_size is not for --format=orbax; leave it out")
  max_shard_bytes = _bytes(_MAX_SHARD_SIZE.value)
  folder = Path(_OUTPUT.value).expanduser()
  done = export(
    loader.open_source(_SOURCE.value),
    folder,
    form=_FORMAT.value,
    dtype=_DTYPE.value,
    max_shard_bytes=max_shard_bytes,
  )
  Terminal().line(
    f"wrote {sanitize(str(folder))}: {done.tensors} tensors, "
    f"{done.size / 10**6:,.1f} MB in {done.dtype}"
  )
  return 0


def _bytes(size: str) -> int:
  """Reads "500MB" or "5GB"."""
  match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([MG]B)", size, re.ASCII)
  if not match or not float(match[1]):
    raise ValueError(
      f"--max_shard_size: expected a size like 500MB or 5GB, got {size!r}"
    )
  return int(float(match[1]) * _UNITS[match[2]])
