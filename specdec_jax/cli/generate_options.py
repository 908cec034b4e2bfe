"""The flags of `specdec generate`, and what they come to."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from specdec_jax.acceptance import named_rule
from specdec_jax.cli import command, prompts_file
from specdec_jax.cli.prompts_file import NamedPrompt
from specdec_jax.drafters import PromptLookup
from specdec_jax.sampling import SamplingParams

_ABOUT = """
usage: specdec generate --target=MODEL [--draft=MODEL] --prompt=TEXT [flags]

Writes text with a target model, sooner with the help of a draft, and tells
how much sooner. The text keeps the target's distribution, to rounding; only
--rule=threshold changes it.

  specdec generate --target=Qwen/Qwen2.5-Coder-1.5B-Instruct \\
    --draft=Qwen/Qwen2.5-Coder-0.5B-Instruct --prompt='def fib(n):' --compare
  specdec generate --target=folder --drafter=lookup --prompts_file=edits.jsonl
  git diff | specdec generate --target=folder --chat_template --prompt=- --json

MODEL is a folder with a Hugging Face checkpoint, or a hub id. Text goes to
stdout, followed by a table; progress goes to stderr. Ctrl-C ends a generation
early and keeps what there is. The exit code is 0, 2 after bad input, or 130
after Ctrl-C.
"""

FLAGS = flags.FlagValues()

_TARGET = flags.DEFINE_string(
  "target", None, "The model whose text is wanted.", flag_values=FLAGS
)
_DRAFT = flags.DEFINE_string(
  "draft",
  None,
  "A smaller model with the same tokenizer, to guess what comes.",
  flag_values=FLAGS,
)
_DTYPE = flags.DEFINE_enum(
  "dtype",
  "bfloat16",
  ["bfloat16", "float32"],
  "Of weights and activations.",
  flag_values=FLAGS,
)
_DRAFTER = flags.DEFINE_enum(
  "drafter",
  None,
  ["model", "lookup", "none"],
  "Where guesses come from: --draft, copies of what followed the same words "
  "earlier in the text, or nowhere (plain decoding). By default model if "
  "--draft is given, else none.",
  flag_values=FLAGS,
)
_NUM_DRAFT_TOKENS = flags.DEFINE_integer(
  "num_draft_tokens",
  None,
  "K, the most tokens guessed at a time; by default 4 with a draft model, 8 "
  "with lookup.",
  flag_values=FLAGS,
)
_MAX_NGRAM = flags.DEFINE_integer(
  "max_ngram",
  3,
  "How many of the newest tokens lookup compares at most.",
  flag_values=FLAGS,
)
_MIN_CONFIDENCE = flags.DEFINE_float(
  "min_confidence",
  0.0,
  "The draft model stops guessing where its largest probability is below this.",
  flag_values=FLAGS,
)
_RULE = flags.DEFINE_string(
  "rule",
  "block",
  "How guesses are accepted: block, token, gumbel (the very tokens of plain "
  "gumbel sampling with the same seed), or threshold, which is lossy. All are "
  "one at temperature 0.",
  flag_values=FLAGS,
)
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
_MAX_NEW_TOKENS = flags.DEFINE_integer(
  "max_new_tokens",
  128,
  "The most tokens written for a prompt.",
  flag_values=FLAGS,
)
_BATCH_SIZE = flags.DEFINE_integer(
  "batch_size",
  1,
  "How many prompts of a file run side by side. 1 measures what a single user "
  "would see; more is faster in sum where the chip is idle otherwise. In "
  "float32 the text stays the same; in bfloat16 near ties may fall otherwise.",
  flag_values=FLAGS,
)
_TEMPERATURE = flags.DEFINE_float(
  "temperature",
  0.0,
  "Divides the logits; 0 takes the most probable token.",
  flag_values=FLAGS,
)
_TOP_K = flags.DEFINE_integer(
  "top_k",
  0,
  "Keep the k most probable tokens; 0 keeps all.",
  flag_values=FLAGS,
)
_TOP_P = flags.DEFINE_float(
  "top_p",
  1.0,
  "Keep the most probable tokens up to this probability; in (0, 1].",
  flag_values=FLAGS,
)
_MIN_P = flags.DEFINE_float(
  "min_p",
  0.0,
  "Keep tokens of at least min_p times the largest probability.",
  flag_values=FLAGS,
)
_SEED = flags.DEFINE_integer(
  "seed",
  0,
  "Of the random numbers; prompt i of a file takes seed + i.",
  flag_values=FLAGS,
)
_USE_GENERATION_CONFIG = flags.DEFINE_bool(
  "use_generation_config",
  False,
  "Take the sampling values that are not given as flags from the target's "
  "generation_config.json.",
  flag_values=FLAGS,
)
_COMPARE = flags.DEFINE_bool(
  "compare",
  False,
  "Run plain decoding too, warm and in turn, and compare speed and tokens.",
  flag_values=FLAGS,
)
_JSON = flags.DEFINE_bool(
  "json",
  False,
  "Write one JSON object per prompt and nothing else. A prompt's tokens per "
  "second are its own tokens over the seconds of its batch.",
  flag_values=FLAGS,
)
_HELP = flags.DEFINE_bool(
  "help", False, "Show this help.", short_name="h", flag_values=FLAGS
)

_GROUPS = {
  "models": (_TARGET, _DRAFT, _DTYPE),
  "prompts": (_PROMPT, _PROMPTS_FILE, _CHAT_TEMPLATE),
  "speculation": (
    _DRAFTER,
    _NUM_DRAFT_TOKENS,
    _MAX_NGRAM,
    _MIN_CONFIDENCE,
    _RULE,
  ),
  "sampling": (
    _MAX_NEW_TOKENS,
    _TEMPERATURE,
    _TOP_K,
    _TOP_P,
    _MIN_P,
    _SEED,
    _USE_GENERATION_CONFIG,
  ),
  "running": (_BATCH_SIZE, _COMPARE, _JSON, _HELP),
}
# The drafters that know a flag; the others do not take it.
_DRAFTER_FLAGS = (
  (_NUM_DRAFT_TOKENS, ("model", "lookup")),
  (_MAX_NGRAM, ("lookup",)),
  (_MIN_CONFIDENCE, ("model",)),
)
# All are verified in one pass, and its logits are [B, K + 1, V].
_MOST_DRAFT_TOKENS = 1024
_MOST_NGRAM = 64  # each length compiles code of its own
_SAMPLING = {
  "temperature": _TEMPERATURE,
  "top_k": _TOP_K,
  "top_p": _TOP_P,
  "min_p": _MIN_P,
}


@dataclasses.dataclass(frozen=True)
class Options:
  """The flags, checked as far as that costs nothing.

  Attributes:
    target: hub id or folder.
    draft: hub id or folder, None without.
    dtype: of weights and activations.
    drafter: "model", "lookup" or "none".
    drafter_given: whether the user chose it.
    drafter_arguments: of the drafter's class, a model apart.
    rule: name of the acceptance rule.
    prompts: at least one.
    chat_template: whether prompts are messages.
    max_new_tokens: of a prompt.
    batch_size: prompts side by side.
    sampling: what the flags say.
    sampling_given: its fields that the user chose.
    use_generation_config: whether the author chooses the others.
    compare: whether to run plain decoding too.
    json: whether a program reads the output.
  """

  target: str
  draft: str | None
  dtype: str
  drafter: str
  drafter_given: bool
  drafter_arguments: Mapping[str, Any]
  rule: str
  prompts: Sequence[NamedPrompt]
  chat_template: bool
  max_new_tokens: int
  batch_size: int
  sampling: SamplingParams
  sampling_given: frozenset[str]
  use_generation_config: bool
  compare: bool
  json: bool


def parse(argv: Sequence[str]) -> Options | None:
  """Reads the flags.

  Returns:
    The options; None where help was asked for, and has been printed.

  Raises:
    flags.Error: a flag is unknown, or its value is of the wrong kind.
    ValueError: flags do not go together, a value is out of range, or the
      prompts cannot be read.
    OSError: the file of prompts cannot be read.
  """
  command.parse(FLAGS, argv)
  if _HELP.value:
    print(command.help_text(_ABOUT, _GROUPS, FLAGS))
    return None
  if not _TARGET.value:
    raise ValueError("--target: expected a folder or a hub id, got none")
  if _DRAFT.value == "":
    raise ValueError(
      "--draft: expected a folder or a hub id, got nothing; give --draft=MODEL "
      "or leave the flag out"
    )
  named_rule(_RULE.value)
  for flag in (_MAX_NEW_TOKENS, _BATCH_SIZE):
    if flag.value < 1:
      raise ValueError(f"--{flag.name}: expected at least 1, got {flag.value}")
  drafter = _DRAFTER.value or ("model" if _DRAFT.value else "none")
  sampling: dict[str, Any] = {
    name: flag.value for name, flag in _SAMPLING.items()
  }
  return Options(
    target=_TARGET.value,
    draft=_DRAFT.value,
    dtype=_DTYPE.value,
    drafter=drafter,
    drafter_given=_DRAFTER.present,
    drafter_arguments=_drafter_arguments(drafter),
    rule=_RULE.value,
    sampling=SamplingParams(**sampling, seed=_SEED.value),
    sampling_given=frozenset(
      name for name, flag in _SAMPLING.items() if flag.present
    ),
    prompts=_prompts(),
    chat_template=_CHAT_TEMPLATE.value,
    max_new_tokens=_MAX_NEW_TOKENS.value,
    batch_size=_BATCH_SIZE.value,
    use_generation_config=_USE_GENERATION_CONFIG.value,
    compare=_COMPARE.value,
    json=_JSON.value,
  )


def _drafter_arguments(drafter: str) -> dict[str, Any]:
  """The arguments of the drafter's class, checked before models are loaded."""
  for flag, drafters in _DRAFTER_FLAGS:
    if flag.present and drafter not in drafters:
      raise ValueError(
        f"--{flag.name} is not for --drafter={drafter}, only for "
        f"{' and '.join(drafters)}; leave it out"
      )
  for flag, most in (
    (_NUM_DRAFT_TOKENS, _MOST_DRAFT_TOKENS),
    (_MAX_NGRAM, _MOST_NGRAM),
  ):
    if flag.value is not None and flag.value > most:
      raise ValueError(
        f"--{flag.name}: expected at most {most}, got {flag.value}"
      )
  if not 0 <= _MIN_CONFIDENCE.value <= 1:
    raise ValueError(
      "--min_confidence: expected a probability in [0, 1], got "
      f"{_MIN_CONFIDENCE.value}"
    )
  arguments: dict[str, Any] = {}
  if _NUM_DRAFT_TOKENS.value is not None:
    arguments["num_draft_tokens"] = _NUM_DRAFT_TOKENS.value
  if drafter == "model":
    if not _DRAFT.value:
      raise ValueError(
        "--drafter=model: expected a draft model, got none; give --draft"
      )
    if arguments.get("num_draft_tokens", 1) < 1:
      raise ValueError(
        "--num_draft_tokens: expected at least 1 with a draft model, got "
        f"{_NUM_DRAFT_TOKENS.value}; --drafter=none is plain decoding"
      )
    return arguments | {"min_confidence": _MIN_CONFIDENCE.value}
  if drafter == "lookup":
    arguments["max_ngram"] = _MAX_NGRAM.value
    PromptLookup(**arguments)  # raises where they are out of range
    return arguments
  if _COMPARE.value:
    raise ValueError(
      "--compare: nothing to compare plain decoding with; give --draft or "
      "--drafter=lookup"
    )
  return {}


def _prompts() -> list[NamedPrompt]:
  if _PROMPT.value is not None and _PROMPTS_FILE.value is not None:
    raise ValueError("expected --prompt or --prompts_file, got both")
  if _PROMPTS_FILE.value == "":
    raise ValueError("--prompts_file: expected a path, got nothing")
  if _PROMPTS_FILE.value is not None:
    return prompts_file.read(_PROMPTS_FILE.value)
  if _PROMPT.value is not None:
    return [prompts_file.one_prompt(_PROMPT.value)]
  raise ValueError(
    "expected a prompt, got none; give --prompt (- reads stdin) or "
    "--prompts_file"
  )
