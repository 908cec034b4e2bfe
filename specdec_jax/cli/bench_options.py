"""The flags of `specdec bench`, and what they come to."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from absl import flags

from specdec_jax.acceptance import named_rule
from specdec_jax.bench import cells, workload
from specdec_jax.bench.cells import Cell
from specdec_jax.bench.ways import Limits
from specdec_jax.bench.workload import Item
from specdec_jax.cli import command, prompts_file
from specdec_jax.cli.pair_flags import MOST_DRAFT_TOKENS, PairFlags
from specdec_jax.sampling import SamplingParams

_ABOUT = """
usage: specdec bench --prompts_file=FILE [--target=MODEL --draft=MODEL] [flags]

Measures how fast a pair decodes here, with which settings, and where the time
goes: every drafter, rule, K, temperature and batch size that is listed, in turn
with plain decoding on the same prompts, warm. Beside it stand the prediction of
Leviathan's formula from the times of the passes run alone, and what the engine
adds to them.

  specdec bench --prompts_file=HumanEval.jsonl --limit=10 --output=results
  specdec bench --prompts_file=mine.jsonl --suggest
  specdec bench --target=folder --draft=folder --prompts_file=question.jsonl \\
    --temperatures=0,1 --rules=token,block,gumbel --num_draft_tokens=2,4,8 \\
    --chat_template --output=results --report=results.html

FILE is HumanEval's or Spec-Bench's as they come, JSON lines with `prompt` and
maybe `task`, or plain text with a prompt a line. With --output, Ctrl-C loses
nothing: the same command goes on. The exit code is 0, 1 if a greedy text is not
plain decoding's and no near tie explains it, 2 after bad input, or 130 after
Ctrl-C.
"""

FLAGS = command.new_flags()
T = TypeVar("T")
_SUGGEST_LIMIT = 4

PAIR = PairFlags(FLAGS)
_PROMPTS_FILE = flags.DEFINE_string(
  "prompts_file",
  None,
  "The prompts, see above; - for stdin.",
  flag_values=FLAGS,
)
_CHAT_TEMPLATE = flags.DEFINE_bool(
  "chat_template",
  False,
  "Prompts are messages of a user, rendered by the target's chat template.",
  flag_values=FLAGS,
)
_LIMIT = flags.DEFINE_integer(
  "limit",
  None,
  "Take so many prompts, spread evenly over all tasks and always the same; by "
  f"default all, or {_SUGGEST_LIMIT} with --suggest.",
  lower_bound=1,
  flag_values=FLAGS,
)
_DRAFTERS = flags.DEFINE_list(
  "drafters",
  None,
  "Of model and lookup; by default both, if there is a draft.",
  flag_values=FLAGS,
)
_RULES = flags.DEFINE_list(
  "rules",
  ["block"],
  "Of acceptance, above temperature 0: block, token, gumbel, or a lossy one.",
  flag_values=FLAGS,
)
_NUM_DRAFT_TOKENS = flags.DEFINE_list(
  "num_draft_tokens",
  None,
  "K, each to be measured; by default 2,4,8, or 1,2,3,4,6,8 with --suggest.",
  flag_values=FLAGS,
)
_TEMPERATURES = flags.DEFINE_list(
  "temperatures", ["0"], "Each to be measured: 0,1", flag_values=FLAGS
)
_BATCH_SIZES = flags.DEFINE_list(
  "batch_sizes",
  ["1"],
  "How many prompts of a task run side by side, each to be measured: 1,8",
  flag_values=FLAGS,
)
_MAX_NEW_TOKENS = flags.DEFINE_integer(
  "max_new_tokens",
  None,
  "The most tokens written for a prompt; by default 128, or 64 with --suggest.",
  lower_bound=1,
  flag_values=FLAGS,
)
_IGNORE_EOS = flags.DEFINE_bool(
  "ignore_eos",
  False,
  "Go on after an end of sequence, so that all texts have the same length.",
  flag_values=FLAGS,
)
_ROUNDS = flags.DEFINE_integer(
  "rounds",
  None,
  "How often each runs on a prompt; by default 3, or 1 with --suggest.",
  lower_bound=1,
  flag_values=FLAGS,
)
_SEED = flags.DEFINE_integer(
  "seed",
  0,
  "Of the random numbers; each prompt and round has another one.",
  lower_bound=0,
  upper_bound=2**32 - 1,
  flag_values=FLAGS,
)
_SUGGEST = flags.DEFINE_bool(
  "suggest",
  False,
  "Screen the settings on a few prompts, and say which to use.",
  flag_values=FLAGS,
)
_PEER = flags.DEFINE_enum(
  "peer",
  None,
  ["transformers"],
  "Run the same through transformers' assisted generation too, in turn; needs "
  "pip install 'specdec_jax[torch]' and a pair in folders.",
  flag_values=FLAGS,
)
_OUTPUT = flags.DEFINE_string(
  "output",
  None,
  "A folder for what was measured. The same command goes on where it is not "
  "complete, and shows it again where it is.",
  flag_values=FLAGS,
)
_JSON = flags.DEFINE_bool(
  "json", False, "Print JSON instead of tables.", flag_values=FLAGS
)
_NOTE = flags.DEFINE_string(
  "note",
  "",
  "Kept with the results: where the weights come from, for example.",
  flag_values=FLAGS,
)
_REPORT = flags.DEFINE_string(
  "report",
  None,
  "Write a page with plots to this HTML file.",
  flag_values=FLAGS,
)
_GROUPS = {
  "models": PAIR.models,
  "prompts": (_PROMPTS_FILE, _CHAT_TEMPLATE, _LIMIT),
  "where texts end": (_MAX_NEW_TOKENS, _IGNORE_EOS),
  "what is measured": (
    _DRAFTERS,
    _RULES,
    _NUM_DRAFT_TOKENS,
    _TEMPERATURES,
    _BATCH_SIZES,
    _PEER,
    *PAIR.drafting,
  ),
  "running": (_SUGGEST, _ROUNDS, _SEED),
  "output": (_OUTPUT, _JSON, _NOTE, _REPORT),
  "devices": PAIR.devices,
}


@dataclasses.dataclass(frozen=True)
class Options:
  """What to measure, and where to put it.

  Attributes:
    items: the prompts.
    cells: the ways of decoding.
    chat_template: whether prompts are messages.
    limits: where texts end.
    rounds: how often each cell runs on a prompt.
    seed: of the first prompt.
    suggest: whether to say which settings to use.
    peer: another engine; None without.
    output: the folder; None without.
    json: whether a program reads the output.
    note: free text.
    report: the HTML file; None without.
  """

  items: Sequence[Item]
  cells: Sequence[Cell]
  chat_template: bool
  limits: Limits
  rounds: int
  seed: int
  suggest: bool
  peer: str | None
  output: Path | None
  json: bool
  note: str
  report: Path | None

  def settings(self) -> dict[str, Any]:
    """What results depend on, besides models and prompts."""
    return {
      "chat_template": self.chat_template,
      **dataclasses.asdict(self.limits),
      "rounds": self.rounds,
      "seed": self.seed,
    }


def parse(argv: Sequence[str]) -> bool:
  """Reads the flags; False where help was asked for, and has been printed.

  Raises:
    flags.Error, ValueError: they are wrong.
  """
  return command.parse(FLAGS, argv, _ABOUT, _GROUPS)


def read() -> Options:
  """What the flags come to that `parse` has read, and the prompts.

  Raises:
    ValueError: flags do not go together, a value is out of range, or a line
      of the file of prompts is no prompt.
    OSError: that file cannot be read.
  """
  drafters = _drafters()
  PAIR.check_models(drafters)
  grid = cells.grid(
    drafters=drafters,
    rules=_each(_RULES, _rule),
    num_draft_tokens=_each(_NUM_DRAFT_TOKENS, _count, _default_lengths()),
    temperatures=_each(_TEMPERATURES, _temperature),
    batch_sizes=_each(_BATCH_SIZES, _batch_size),
  )
  if _PEER.value is not None:
    grid = cells.with_peer(grid, _PEER.value)
  report = _path(_REPORT)
  if report is not None and not report.parent.is_dir():
    raise ValueError(f"--report: no such folder: {report.parent}")
  if not _PROMPTS_FILE.value:
    raise ValueError("--prompts_file: expected a file of prompts, got none")
  limit = _LIMIT.value or (_SUGGEST_LIMIT if _SUGGEST.value else None)
  items = prompts_file.read_items(_PROMPTS_FILE.value)
  return Options(
    items=workload.spread(items, limit),
    cells=grid,
    chat_template=_CHAT_TEMPLATE.value,
    limits=Limits(
      _MAX_NEW_TOKENS.value or (64 if _SUGGEST.value else 128),
      _IGNORE_EOS.value,
    ),
    rounds=_ROUNDS.value or (1 if _SUGGEST.value else 3),
    seed=_SEED.value,
    suggest=_SUGGEST.value,
    peer=_PEER.value,
    output=_path(_OUTPUT),
    json=_JSON.value,
    note=_NOTE.value,
    report=report,
  )


def _path(flag: flags.FlagHolder[str | None]) -> Path | None:
  if flag.value is None:
    return None
  if not flag.value:
    raise ValueError(f"--{flag.name}: expected a path, got nothing")
  return Path(flag.value).expanduser()


def _drafters() -> list[str]:
  if _DRAFTERS.value is None:
    return ["model", "lookup"] if PAIR.draft else ["lookup"]
  return _each(_DRAFTERS, _drafter)


def _default_lengths() -> list[str]:
  return (["1", "2", "3", "4", "6", "8"]) if _SUGGEST.value else ["2", "4", "8"]


def _each(
  flag: flags.FlagHolder, read_one: Callable[[str], T], default: Any = None
) -> list[T]:
  """The values of a list, each once; says whose they are where one is wrong."""
  texts = default if flag.value is None else flag.value
  if not texts:
    raise ValueError(f"--{flag.name}: expected at least one, got none")
  try:
    return list(dict.fromkeys(read_one(text) for text in texts))
  except ValueError as error:
    raise ValueError(f"--{flag.name}: {error}") from None


def _drafter(text: str) -> str:
  if text not in ("model", "lookup"):
    raise ValueError(
      f"expected model or lookup, got {text!r}; plain decoding is measured "
      "always"
    )
  return text


def _rule(text: str) -> str:
  named_rule(text)
  return text


def _count(text: str) -> int:
  count = _integer(text)
  if not 1 <= count <= MOST_DRAFT_TOKENS:
    raise ValueError(f"expected 1 to {MOST_DRAFT_TOKENS}, got {count}")
  return count


def _batch_size(text: str) -> int:
  size = _integer(text)
  if size < 1:
    raise ValueError(f"expected at least 1, got {size}")
  return size


def _integer(text: str) -> int:
  try:
    return int(text)
  except ValueError:
    raise ValueError(f"expected whole numbers, got {text!r}") from None


def _temperature(text: str) -> float:
  try:
    value = float(text)
  except ValueError:
    raise ValueError(f"expected numbers, got {text!r}") from None
  return SamplingParams(temperature=value).temperature
