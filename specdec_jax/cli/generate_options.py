"""The flags of `specdec generate`, and what they come to."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from absl import flags

from specdec_jax.cli import command, prompts_file, token_report
from specdec_jax.cli.distributed_flags import DistributedFlags
from specdec_jax.cli.job import Job
from specdec_jax.cli.model_flags import ModelFlags
from specdec_jax.cli.prompts_file import NamedPrompt
from specdec_jax.cli.sampling_flags import SamplingFlags

_ABOUT = """
usage: specdec generate [--target=MODEL] [--draft=MODEL] --prompt=TEXT [flags]

Writes text with a target model, sooner with the help of a draft, and tells
how much sooner. The text keeps the target's distribution, to rounding; only
the lossy rules change it.

  specdec generate --prompt='def fib(n):' --compare
  specdec generate --target=Qwen/Qwen2.5-Coder-1.5B-Instruct \\
    --draft=Qwen/Qwen2.5-Coder-0.5B-Instruct --prompt='def fib(n):' --compare
  specdec generate --target=folder --drafter=lookup --prompts_file=edits.jsonl
  specdec generate --prompt='def fib(n):' --report=tokens.html
  git diff | specdec generate --target=folder --chat_template --prompt=- --json
  specdec generate --target=folder --draft=folder --prompts_file=many.jsonl \\
    --batch_size=8 --output=results.jsonl

MODEL is a folder with a Hugging Face or an orbax checkpoint, a .gguf file, a
hub id, or embedded:pycode/target or embedded:pycode/draft, the small pair that
comes with the package and is used where no model is named. Text goes to
stdout, followed by a table; progress goes to stderr. Ctrl-C ends a generation
early and keeps what there is. The exit code is 0, 2 after bad input, or 130
after Ctrl-C; with --distributed it is 1 or more where any process has failed.
"""

FLAGS = command.new_flags()

MODELS = ModelFlags(FLAGS)
_PROMPT = flags.DEFINE_string(
  "prompt", None, "The prompt; - reads it from stdin.", flag_values=FLAGS
)
_PROMPTS_FILE = flags.DEFINE_string(
  "prompts_file",
  None,
  "Many prompts, - for stdin: JSON lines with `prompt` (text) or `turns` (a "
  "list, the first counts), or plain text with a prompt a line.",
  flag_values=FLAGS,
)
_CHAT_TEMPLATE = flags.DEFINE_bool(
  "chat_template",
  False,
  "Prompts are messages of a user, rendered by the target's chat template.",
  flag_values=FLAGS,
)
_NUM_SAMPLES = flags.DEFINE_integer(
  "num_samples",
  1,
  "How many texts are written for each prompt, each with the next seed.",
  flag_values=FLAGS,
)
SAMPLING = SamplingFlags(FLAGS, max_new_tokens=128)
_BATCH_SIZE = flags.DEFINE_integer(
  "batch_size",
  1,
  "How many texts are written side by side; the next prompt takes the place of "
  "each that ends. 1 measures what a single user would see; more is faster in "
  "sum where the chip is idle otherwise. In float32 the text stays the same; "
  "in bfloat16 near ties may fall otherwise.",
  flag_values=FLAGS,
)
_COMPARE = flags.DEFINE_bool(
  "compare",
  False,
  "Run plain decoding too, warm and in turn, and compare speed and tokens: of "
  "each prompt, of all, and the median.",
  flag_values=FLAGS,
)
_JSON = flags.DEFINE_bool(
  "json",
  False,
  "Write one JSON object per text and nothing else. Its tokens per second are "
  "its own tokens over the seconds of the loop while it was in it.",
  flag_values=FLAGS,
)
_OUTPUT = flags.DEFINE_string(
  "output",
  None,
  "Write the JSON objects to this file, each when its text and all before it "
  "have ended. The same command goes on with a file that is not complete.",
  flag_values=FLAGS,
)
_REPORT = flags.DEFINE_string(
  "report",
  None,
  "Write a page to this HTML file that shows each text block by block: what "
  "was drafted, kept and rejected, and how probable it was.",
  flag_values=FLAGS,
)
DISTRIBUTED = DistributedFlags(FLAGS)

_GROUPS = {
  "models": MODELS.models,
  "prompts": (_PROMPT, _PROMPTS_FILE, _CHAT_TEMPLATE, _NUM_SAMPLES),
  "speculation": MODELS.speculation,
  "sampling": SAMPLING.sampling,
  "where the text ends": SAMPLING.ends,
  "running": (_BATCH_SIZE, _COMPARE, _JSON, _OUTPUT, _REPORT),
  "devices": (*MODELS.devices, *DISTRIBUTED.flags),
}


@dataclasses.dataclass(frozen=True)
class Options:
  """What to write and where to; models and sampling have flags of their own.

  Attributes:
    prompts: at least one.
    chat_template: whether prompts are messages.
    num_samples: texts of a prompt.
    batch_size: texts side by side.
    compare: whether to run plain decoding too.
    json: whether a program reads the output.
    output: the file that takes the results; None without.
    report: the page that shows them; None without.
    job: the processes that run this together.
  """

  prompts: Sequence[NamedPrompt]
  chat_template: bool
  num_samples: int
  batch_size: int
  compare: bool
  json: bool
  output: str | None
  report: Path | None
  job: Job


def parse(argv: Sequence[str]) -> bool:
  """Reads the flags, and checks them as far as that costs nothing.

  Returns:
    Whether there is something to do: not where help was asked for, and has
    been printed.

  Raises:
    flags.Error: a flag is unknown, or its value is of the wrong kind.
    ValueError: flags do not go together, or a value is out of range.
  """
  if not command.parse(FLAGS, argv, _ABOUT, _GROUPS):
    return False
  MODELS.check()
  DISTRIBUTED.check()
  for flag in (_NUM_SAMPLES, _BATCH_SIZE):
    if flag.value < 1:
      raise ValueError(f"--{flag.name}: expected at least 1, got {flag.value}")
  if _COMPARE.value and MODELS.drafter == "none":
    raise ValueError(
      "--compare: nothing to compare plain decoding with; give --draft or "
      "--drafter=lookup"
    )
  if _OUTPUT.value == "":
    raise ValueError("--output: expected a path, got nothing")
  if _REPORT.value is not None:
    token_report.check_path(_REPORT.value)
  for name in (_COMPARE.name, _JSON.name, _REPORT.name):
    if FLAGS[name].value and _OUTPUT.value:
      raise ValueError(
        f"--{name} does not go with --output; leave one of them out"
      )
  if _PROMPT.value is not None and _PROMPTS_FILE.value is not None:
    raise ValueError("expected --prompt or --prompts_file, got both")
  if _PROMPTS_FILE.value == "":
    raise ValueError("--prompts_file: expected a path, got nothing")
  if _PROMPT.value is None and _PROMPTS_FILE.value is None:
    raise ValueError(
      "expected a prompt, got none; give --prompt (- reads stdin) or "
      "--prompts_file"
    )
  SAMPLING.params()
  return True


def read_options(job: Job) -> Options:
  """What the flags come to that `parse` has read.

  Process 0 reads the prompts.

  Raises:
    ValueError: a prompt is no text.
    OSError: the file of prompts cannot be read.
  """
  told = job.from_first(
    lambda: [(prompt.name, prompt.text) for prompt in _prompts()]
  )
  return Options(
    prompts=[NamedPrompt(*prompt) for prompt in told],
    chat_template=_CHAT_TEMPLATE.value,
    num_samples=_NUM_SAMPLES.value,
    batch_size=_BATCH_SIZE.value,
    compare=_COMPARE.value,
    json=_JSON.value,
    output=_OUTPUT.value,
    report=None if _REPORT.value is None else Path(_REPORT.value),
    job=job,
  )


def _prompts() -> list[NamedPrompt]:
  if _PROMPTS_FILE.value is not None:
    return prompts_file.read(_PROMPTS_FILE.value)
  assert _PROMPT.value is not None  # the flags were checked
  return [prompts_file.one_prompt(_PROMPT.value)]
