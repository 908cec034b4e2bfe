"""`specdec plan`: compiles a pair for TPUs that are not here."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import jax
from absl import flags

from specdec_jax.cli import command, mesh_flag, plan_report
from specdec_jax.cli.terminal import Terminal
from specdec_jax.plan import abstract, chips, picture, planner

_ABOUT = f"""
usage: specdec plan --target=MODEL --draft=MODEL [flags]

Tells whether a pair fits a slice of TPUs and what it can bring there at best,
before anyone rents one: compiles the generation and its passes for the slice
and counts what they move and compute. Needs no weights and no TPU, but its
compiler: pip install 'specdec_jax[aot]'.

  specdec plan --target=Qwen/Qwen3-8B --draft=Qwen/Qwen3-0.6B \\
    --topology=v5e:2x4
  specdec plan --target=target/config.json --draft=draft/config.json \\
    --topology=auto --plot=speedup.png

MODEL is a folder with a config.json, such a file, or a hub id, of which
nothing else is downloaded. The slices:

{chr(10).join(f"  {c.name}:  {', '.join(c.slices)}" for c in chips.CHIPS)}

The exit code is 0, 1 if the pair does not fit, or 2 after bad input.
"""

FLAGS = command.new_flags()

_TARGET = flags.DEFINE_string(
  "target", None, "The model whose law the output has.", flag_values=FLAGS
)
_DRAFT = flags.DEFINE_string(
  "draft", None, "The model that drafts for it.", flag_values=FLAGS
)
_DTYPE = flags.DEFINE_enum(
  "dtype",
  "bfloat16",
  ["bfloat16", "float32"],
  "Of weights, activations and caches.",
  flag_values=FLAGS,
)
_QUANTIZE = flags.DEFINE_enum(
  "quantize",
  None,
  ["int8"],
  "Weights of both models in 8 bits, as in specdec generate.",
  flag_values=FLAGS,
)
_TOPOLOGY = flags.DEFINE_string(
  "topology",
  chips.AUTO,
  "The slice, see above; auto is the one of least memory that fits.",
  flag_values=FLAGS,
)
_MESH = flags.DEFINE_string(
  "mesh",
  None,
  "How the slice is split: data:2,model:4 splits the rows of a batch in 2 and "
  "the weights in 4. If not given, the weights over all of it; on slices that "
  "auto tries rows as well, where that is needed.",
  flag_values=FLAGS,
)
_DRAFT_SHARDING = mesh_flag.define_draft_sharding(FLAGS)
_BATCH_SIZE = flags.DEFINE_integer(
  "batch_size",
  8,
  "Rows side by side.",
  lower_bound=1,
  upper_bound=2**16,
  flag_values=FLAGS,
)
_CONTEXT_LENGTH = flags.DEFINE_integer(
  "context_length",
  4000,
  "Tokens of a row, prompt and text together.",
  lower_bound=2,
  upper_bound=2**30,
  flag_values=FLAGS,
)
_NUM_DRAFT_TOKENS = flags.DEFINE_integer(
  "num_draft_tokens",
  4,
  "Drafts of a block, K: of the program that is compiled. The table has K from "
  "1 to 10.",
  lower_bound=1,
  upper_bound=64,
  flag_values=FLAGS,
)
_JSON = flags.DEFINE_bool(
  "json", False, "Print JSON instead of tables.", flag_values=FLAGS
)
_PLOT = flags.DEFINE_string(
  "plot", None, "Draw the speedup to this PNG file.", flag_values=FLAGS
)
_GROUPS = {
  "models": (_TARGET, _DRAFT, _DTYPE, _QUANTIZE),
  "hardware": (_TOPOLOGY, _MESH, _DRAFT_SHARDING),
  "generation": (_BATCH_SIZE, _CONTEXT_LENGTH, _NUM_DRAFT_TOKENS),
  "output": (_JSON, _PLOT),
}
DOES_NOT_FIT = 1
T = TypeVar("T")


def main(argv: Sequence[str]) -> int:
  """Runs the command; argv[0] is its name. Returns the exit code."""
  return command.run(argv[0], lambda: _plan(argv))


def _plan(argv: Sequence[str]) -> int:
  if not command.parse(FLAGS, argv, _ABOUT, _GROUPS):
    return 0
  names = _model(_TARGET), _model(_DRAFT)
  path = None if _PLOT.value is None else Path(_PLOT.value).expanduser()
  if path is not None and not path.parent.is_dir():
    raise ValueError(f"--plot: no such folder: {path.parent}")
  if path is not None and (path.suffix.lower() != ".png" or path.is_dir()):
    raise ValueError(f"--plot: expected a PNG file, for example x.png: {path}")
  # Nothing is run here: a TPU that may be there stays free for others.
  jax.config.update("jax_platforms", "cpu")
  request = planner.Request(
    target=_of("target", lambda: abstract.read_config(names[0])),
    draft=_of("draft", lambda: abstract.read_config(names[1])),
    topology=_of("topology", lambda: chips.parse(_TOPOLOGY.value)),
    mesh=None if _MESH.value is None else mesh_flag.parse_sizes(_MESH.value),
    batch_size=_BATCH_SIZE.value,
    context_length=_CONTEXT_LENGTH.value,
    num_draft_tokens=_NUM_DRAFT_TOKENS.value,
    dtype=_DTYPE.value,
    quantize=_QUANTIZE.value,
    draft_layout=_DRAFT_SHARDING.value,
  )
  terminal = Terminal()
  plan = planner.make(request, terminal.status)
  terminal.status("")
  if _JSON.value:
    terminal.line(json.dumps(plan_report.fields(plan, names)))
  else:
    plan_report.show(plan, names, terminal)
  if path is not None and plan.prediction is not None:
    picture.write(path, plan.prediction)
  return 0 if plan.memory.fits else DOES_NOT_FIT


def _model(flag: flags.FlagHolder[str | None]) -> str:
  if not flag.value:
    raise ValueError(f"--{flag.name}: expected a model, got none")
  return flag.value


def _of(flag: str, read: Callable[[], T]) -> T:
  """Reads a flag's value; says whose it is where it is wrong."""
  try:
    return read()
  except ValueError as error:
    raise ValueError(f"--{flag}: {error}") from error
