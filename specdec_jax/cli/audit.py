"""`specdec audit`: certifies that a pair is lossless on this machine."""

import json
from collections.abc import Sequence
from pathlib import Path

from absl import flags

from specdec_jax import audit
from specdec_jax.cli import command, prompts_file, token_report
from specdec_jax.cli.model_flags import ModelFlags
from specdec_jax.cli.terminal import Terminal, sanitize
from specdec_jax.report.audit import audit_page
from specdec_jax.training.files import write_whole

_ABOUT = """
usage: specdec audit [--target=MODEL] [--draft=MODEL] [flags]

Tells whether a pair is lossless on this machine, and if not, which part of it
is to blame: the rule, the drafter, or the target's cache. It checks that

  self-draft       drafts of the target itself all stay
  greedy identity  greedy text has the tokens of plain decoding
  gumbel identity  so has sampled text, where both share their noise
  sampled law      sampled text has the distribution of plain decoding
  p and q          both models say what they say in a pass from scratch
  acceptance       as many drafts stay as these two laws ask for

  specdec audit
  specdec audit --target=Qwen/Qwen2.5-Coder-1.5B-Instruct \\
    --draft=Qwen/Qwen2.5-Coder-0.5B-Instruct --report=audit.html

In float32 no token may differ. In bfloat16 texts may part where two tokens
nearly tie, and only there; such places are listed with their gap. A lossy rule
is audited as any other, and fails. The exit code is 0 after PASS, 1 after
FAIL, 2 after bad input, or 130 after Ctrl-C.
"""

FLAGS = command.new_flags()

MODELS = ModelFlags(FLAGS)
_PROMPTS_FILE = flags.DEFINE_string(
  "prompts_file",
  None,
  "Prompts to try it on, - for stdin: JSON lines with `prompt` or `turns`, or "
  "plain text with a prompt a line. By default a few beginnings of Python "
  "source.",
  flag_values=FLAGS,
)
_NUM_PROMPTS = flags.DEFINE_integer(
  "num_prompts",
  8,
  "How many of the prompts are used at most, from the first on.",
  flag_values=FLAGS,
)
_NUM_SAMPLES = flags.DEFINE_integer(
  "num_samples",
  2000,
  "How many texts with drafts, and as many without, the sampled law is judged "
  "by, in sum over the first four prompts. More of them see smaller faults.",
  flag_values=FLAGS,
)
_SEED = flags.DEFINE_integer(
  "seed",
  0,
  "Of the random numbers; the same one gives the same audit.",
  flag_values=FLAGS,
)
_JSON = flags.DEFINE_bool(
  "json", False, "Print JSON instead of lines.", flag_values=FLAGS
)
_REPORT = flags.DEFINE_string(
  "report", None, "Write a page about it to this HTML file.", flag_values=FLAGS
)

_GROUPS = {
  "models": MODELS.models,
  "speculation": MODELS.speculation,
  "audit": (_PROMPTS_FILE, _NUM_PROMPTS, _NUM_SAMPLES, _SEED),
  "output": (_JSON, _REPORT),
  "devices": MODELS.devices,
}
FAILED = 1


def main(argv: Sequence[str]) -> int:
  """Runs the command; argv[0] is its name. Returns the exit code."""
  return command.run(argv[0], lambda: _audit(argv))


def _audit(argv: Sequence[str]) -> int:
  if not command.parse(FLAGS, argv, _ABOUT, _GROUPS):
    return 0
  # What costs nothing to check is checked here, before models are loaded.
  MODELS.check()
  if MODELS.drafter == "none":
    raise ValueError(
      "nothing to audit: plain decoding is what an audit compares with; give "
      "--draft=MODEL or --drafter=lookup"
    )
  audit.check_options(_NUM_SAMPLES.value, _SEED.value)
  prompts = _prompts()
  if _REPORT.value is not None:
    token_report.check_path(_REPORT.value)
  terminal = Terminal()
  decoder = MODELS.load(terminal)
  found = audit.audit(
    decoder.target,
    decoder.drafter,
    decoder.rule,
    prompts,
    num_samples=_NUM_SAMPLES.value,
    seed=_SEED.value,
    tell=terminal.status,
  )
  if _REPORT.value is not None:
    write_whole(Path(_REPORT.value), audit_page(found).encode())
  if _JSON.value:
    terminal.line(json.dumps(found.to_dict(), allow_nan=False))
  else:
    for line in found.words.splitlines():
      terminal.line(sanitize(line))
  return 0 if found.passed else FAILED


def _prompts() -> list[str]:
  if _NUM_PROMPTS.value < 1:
    raise ValueError(
      f"--num_prompts: expected at least 1, got {_NUM_PROMPTS.value}"
    )
  if _PROMPTS_FILE.value == "":
    raise ValueError("--prompts_file: expected a path, got nothing")
  prompts = list(audit.PROMPTS)
  if _PROMPTS_FILE.value is not None:
    prompts = [prompt.text for prompt in prompts_file.read(_PROMPTS_FILE.value)]
  return prompts[: _NUM_PROMPTS.value]
