"""`specdec generate`: writes text with a target and a draft."""

import dataclasses
import time
from collections.abc import Sequence

import specdec_jax as sd
from specdec_jax.cli import (
  batches,
  command,
  compare,
  generate_options,
  generation_config,
  report,
)
from specdec_jax.cli.generate_options import Options
from specdec_jax.cli.report import Batch
from specdec_jax.cli.terminal import Terminal, sanitize, shorten
from specdec_jax.types import Drafter


def main(argv: Sequence[str]) -> int:
  """Runs the command; argv[0] is its name. Returns the exit code."""
  return command.run(argv[0], lambda: _generate(argv))


def _generate(argv: Sequence[str]) -> int:
  # What costs nothing to check is checked here, before models are loaded.
  options = generate_options.parse(argv)
  if options is None:
    return 0
  shown = Terminal()
  begin = time.perf_counter()
  decoder = _load(options, shown)
  load_seconds = time.perf_counter() - begin
  requests = batches.make_requests(
    options.prompts,
    decoder.target,
    _sampling(options, decoder.target, shown),
    max_new_tokens=options.max_new_tokens,
    batch_size=options.batch_size,
    chat_template=options.chat_template,
  )
  done, interrupted = _run(requests, decoder, options, shown)
  if done and not options.json:
    _report(done, decoder, load_seconds, shown)
  if interrupted:
    shown.note("interrupted")
    return command.INTERRUPTED
  return 0


def _load(options: Options, shown: Terminal) -> sd.SpeculativeDecoder:
  """Loads the models; the draft first, since what is small fails sooner."""
  drafter: Drafter = sd.NoDraft()
  if options.drafter == "model":
    assert options.draft is not None  # the options were checked
    draft = sd.load(options.draft, dtype=options.dtype)
    drafter = sd.DraftModel(draft, **options.drafter_arguments)
  elif options.drafter == "lookup":
    drafter = sd.PromptLookup(**options.drafter_arguments)
  if options.rule == "threshold":
    shown.note(
      "--rule=threshold is lossy: above temperature 0 the text does not follow "
      "the target's distribution"
    )
  if options.draft and options.drafter != "model":
    shown.note(f"--draft is not used with --drafter={options.drafter}")
  elif options.drafter == "none" and not options.drafter_given:
    shown.note(
      "plain decoding; --draft=MODEL or --drafter=lookup would speculate"
    )
  target = sd.load(options.target, dtype=options.dtype)
  return sd.SpeculativeDecoder(target, drafter, rule=options.rule)


def _sampling(
  options: Options, target: sd.LanguageModel, shown: Terminal
) -> sd.SamplingParams:
  """Sampling from the flags, and from generation_config.json where asked."""
  if not options.use_generation_config:
    return options.sampling
  values = generation_config.sampling_values(target.generation_config)
  used = {k: v for k, v in values.items() if k not in options.sampling_given}
  text = ", ".join(f"{name} {value}" for name, value in used.items())
  shown.note(f"from generation_config.json: {text or 'nothing'}")
  unused = generation_config.left_out(target.generation_config)
  for name, value in unused.items():
    shown.note(f"{name} {value} of generation_config.json is not supported")
  return dataclasses.replace(options.sampling, **used)


def _run(
  requests: Sequence[batches.Request],
  decoder: sd.SpeculativeDecoder,
  options: Options,
  shown: Terminal,
) -> tuple[list[Batch], bool]:
  """Runs the batches in turn and writes what they bring.

  Returns:
    What was done, and whether Ctrl-C came before the end.
  """
  plain = sd.SpeculativeDecoder(decoder.target, sd.NoDraft(), decoder.rule)
  total = len(options.prompts)
  done: list[Batch] = []
  count, interrupted = 0, False
  try:
    for request in requests:
      shown.status(f"prompt {count + 1} of {total}: compile and prefill")
      generation = request.start(decoder)
      if total == 1 and not options.json:
        result, interrupted = batches.stream(generation, shown)
      else:
        shown.status(f"prompt {count + 1} of {total}: decode")
        result, interrupted = batches.finish(generation)
      del generation  # its cache makes room for the next one's
      shown.status("")
      batch = Batch(request, result)
      done.append(batch)
      if not options.json:
        _write(batch, decoder.target, count, total, shown)
      if options.compare and not interrupted:
        shown.status("plain decoding, to compare")
        comparison, interrupted = compare.compare(
          request, decoder, plain, result
        )
        shown.status("")
        batch = done[-1] = Batch(request, result, comparison)
      if options.json:
        for line in report.json_lines(batch, options.compare):
          shown.line(line)
      if interrupted:
        break
      count += len(request.prompts)
  except KeyboardInterrupt:
    # While something compiled: what was finished before is kept.
    shown.status("")
    interrupted = True
  return done, interrupted


def _write(
  batch: Batch,
  target: sd.LanguageModel,
  count: int,
  total: int,
  shown: Terminal,
) -> None:
  """Writes the texts of a batch; that of a single prompt was streamed."""
  for row, prompt in enumerate(batch.request.prompts):
    if total > 1:
      title = f"{prompt.name}: {shorten(prompt.text, 48)}"
      shown.line(f"== {count + row + 1} of {total}: {sanitize(title)}")
      batches.write(batch.result, row, target, shown)
    if not batch.result.texts[row].endswith("\n"):
      shown.line()
    shown.line()


def _report(
  done: Sequence[Batch],
  decoder: sd.SpeculativeDecoder,
  load_seconds: float,
  shown: Terminal,
) -> None:
  """Writes the figures."""
  if legend := shown.legend():
    shown.line(legend)
  shown.table(
    [
      *report.table(done, load_seconds, shown),
      *report.comparison(done, decoder),
    ]
  )
  shown.status("looking where tokens differ")
  differences = [sanitize(line) for line in report.differences(done, decoder)]
  shown.status("")
  for line in differences:
    shown.line(line)
