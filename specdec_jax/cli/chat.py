"""`specdec chat`: a conversation with a model."""

import dataclasses
import sys
from collections.abc import Iterator, Sequence

from absl import flags

import specdec_jax as sd
from specdec_jax.cli import command
from specdec_jax.cli.batches import write_chunks
from specdec_jax.cli.model_flags import ModelFlags
from specdec_jax.cli.sampling_flags import SamplingFlags
from specdec_jax.cli.terminal import Terminal

_ABOUT = """
usage: specdec chat [--target=MODEL] [--draft=MODEL] [flags]

Talks with a target model, sooner with the help of a draft. The whole
conversation is kept, and so are the caches: a turn costs what is new in it.

  specdec chat
  specdec chat --target=Qwen/Qwen2.5-Coder-1.5B-Instruct \\
    --draft=Qwen/Qwen2.5-Coder-0.5B-Instruct --system='Answer in one sentence.'

/stats shows what the last reply cost, /reset forgets the conversation, /quit
or the end of input leaves. Ctrl-C cuts a reply short.

A target without a chat template, such as that of the embedded pair, goes on
with what you type as it stands, until two blank lines or --stop; what you type
next begins below them. Type `def is_prime(n):`, for example.
"""
_COMMANDS = "/stats, /reset, /quit"
_GAP = "\n\n\n"  # what ends a function of Python, or a class

FLAGS = command.new_flags()

_MODELS = ModelFlags(FLAGS)
_SYSTEM = flags.DEFINE_string(
  "system", None, "What the model is told before all else.", flag_values=FLAGS
)
_CONTEXT_LENGTH = flags.DEFINE_integer(
  "context_length",
  2048,
  "Room for so many tokens from the start. A longer conversation compiles "
  "again.",
  flag_values=FLAGS,
)
_SAMPLING = SamplingFlags(FLAGS, max_new_tokens=512)
_GROUPS = {
  "models": _MODELS.models,
  "conversation": (_SYSTEM, _CONTEXT_LENGTH),
  "speculation": _MODELS.speculation,
  "sampling": _SAMPLING.sampling,
  "where a reply ends": _SAMPLING.ends,
  "devices": _MODELS.devices,
}


def main(argv: Sequence[str]) -> int:
  """Runs the command; argv[0] is its name. Returns the exit code."""
  return command.run(argv[0], lambda: _chat(argv))


def _chat(argv: Sequence[str]) -> int:
  if not command.parse(FLAGS, argv, _ABOUT, _GROUPS):
    return 0
  _MODELS.check()
  _SAMPLING.params()
  if _CONTEXT_LENGTH.value < 1:
    raise ValueError(
      f"--context_length: expected at least 1, got {_CONTEXT_LENGTH.value}"
    )
  shown = Terminal()
  decoder = _MODELS.load(shown)
  target = decoder.target
  sampling = _SAMPLING.params_for(target, shown)
  plain = (
    target.tokenizer is not None and not target.tokenizer.has_chat_template
  )
  if plain:
    ends = ", ".join(map(repr, sampling.stop)) or "two blank lines"
    sampling = dataclasses.replace(sampling, stop=sampling.stop or (_GAP,))
    shown.note(
      f"{target.name} has no chat template: it goes on with what you type, "
      f"until {ends}"
    )
  conversation = sd.Conversation(
    decoder,
    system=_SYSTEM.value,
    chat_template=not plain,
    max_new_tokens=_SAMPLING.max_new_tokens,
    sampling=sampling,
    context_length=_CONTEXT_LENGTH.value,
  )
  if sys.stdin.isatty():
    shown.note(f"commands: {_COMMANDS}; Ctrl-C cuts a reply short")
  for text in _lines():
    said = text.strip()
    if said == "/quit":
      break
    if said == "/stats":
      shown.table(_stats(conversation))
    elif said == "/reset":
      conversation.reset()
      shown.note("forgotten")
    elif text.startswith("/"):
      shown.note(f"unknown command {text.split()[0]}; there are {_COMMANDS}")
    else:
      gap = _GAP if plain and conversation.messages else ""
      _reply(conversation, gap + text, shown)
  return 0


def _lines() -> Iterator[str]:
  """What the user types, line by line, without empty ones.

  Indentation is kept: to code it matters.
  """
  prompt = "> " if sys.stdin.isatty() else ""
  while True:
    try:
      text = input(prompt).rstrip()
    except EOFError:
      return
    if text:
      yield text


def _reply(conversation: sd.Conversation, text: str, shown: Terminal) -> None:
  """Says something and writes the reply as it comes."""
  shown.status("compile and prefill")
  try:
    reason = write_chunks(conversation.send(text), shown)
  except ValueError as error:
    shown.note(f"{error}; /reset begins anew")
    return
  conversation.end_turn()
  shown.line()
  if reason not in ("eos", "stop"):
    shown.note(f"the reply ended: {reason or 'interrupted'}")


def _stats(conversation: sd.Conversation) -> Iterator[tuple[str, str]]:
  """What the last reply cost."""
  generation = conversation.generation
  if generation is None:
    yield "replies", "none yet"
    return
  result = generation.result()
  stats = result.stats
  prompt = conversation.prompt_tokens
  yield "prefilled", f"{generation.prefilled_tokens} of {prompt} tokens"
  yield "new tokens", str(stats.new_tokens)
  yield "target passes", str(stats.target_passes)
  if stats.target_passes:
    yield "tokens per pass", f"{stats.tokens_per_target_pass:.2f}"
  if stats.draft_tokens:
    yield "accepted drafts", f"{stats.acceptance_rate:.1%}"
  yield "speed", f"{result.tokens_per_second:.3g} tokens/s"
  timing = result.timing
  yield (
    "time",
    f"compile {timing.compile:.2f} s, prefill {timing.prefill:.2f} s, "
    f"decode {timing.decode:.2f} s",
  )
