"""`specdec generate`: writes text with a target and a draft."""

import functools
import json
import sys
import time
from collections.abc import Callable, Sequence

import tqdm

import specdec_jax as sd
from specdec_jax.cli import batches, command, compare, report, token_report
from specdec_jax.cli.batches import Batch
from specdec_jax.cli.generate_options import (
  DISTRIBUTED,
  MODELS,
  SAMPLING,
  Options,
  parse,
  read_options,
)
from specdec_jax.cli.job import Job
from specdec_jax.cli.output_file import FileElsewhere, OutputFile
from specdec_jax.cli.report import Outcome
from specdec_jax.cli.terminal import Terminal, shorten
from specdec_jax.visible import sanitize


def main(argv: Sequence[str]) -> int:
  """Runs the command; argv[0] is its name. Returns the exit code."""
  return command.run(argv[0], lambda: _generate(argv))


def _generate(argv: Sequence[str]) -> int:
  if not parse(argv):
    return 0
  return DISTRIBUTED.run(argv[0], _write)


def _write(job: Job) -> int:
  # What costs nothing to check is checked here, before models are loaded.
  options = read_options(job)
  shown = Terminal()
  file = _output_file(options)
  if file is not None and file.count:
    shown.note(f"{options.output} holds {file.count} results already")
    if file.count == len(options.prompts) * options.num_samples:
      return 0
  begin = time.perf_counter()
  decoder = MODELS.load(shown)
  load_seconds = time.perf_counter() - begin
  batch = batches.read(
    options.prompts,
    decoder.target,
    SAMPLING.params_for(decoder.target, shown),
    max_new_tokens=SAMPLING.max_new_tokens,
    num_samples=options.num_samples,
    rows=options.batch_size,
    chat_template=options.chat_template,
    trace=options.report is not None,
  )
  if file is None:
    done, interrupted = _run_shown(batch, decoder, options, shown)
  else:
    done, interrupted = _run_into(file, batch, decoder, options)
  if done and not options.json:
    _report(done, decoder, load_seconds, shown)
  if options.report is not None and options.job.index == 0:
    settings = MODELS.settings()
    token_report.write(options.report, done, decoder, settings, shown)
  if interrupted:
    shown.note("interrupted")
    return command.INTERRUPTED
  return 0


def _output_file(options: Options) -> OutputFile | FileElsewhere | None:
  if options.output is None:
    return None
  settings = {
    **MODELS.settings(),
    **SAMPLING.settings(),
    "chat_template": options.chat_template,
    "num_samples": options.num_samples,
  }
  prompts = [p for p in options.prompts for _ in range(options.num_samples)]
  job = options.job
  file = None if job.index else OutputFile(options.output, prompts, settings)
  count = job.agree(file.count if file else 0)
  return file or FileElsewhere(count)


def _run_shown(
  batch: Batch,
  decoder: sd.SpeculativeDecoder,
  options: Options,
  shown: Terminal,
) -> tuple[list[Outcome], bool]:
  """Runs a batch and writes what it brings to stdout."""
  total = len(batch.prompts)
  count = 0

  def write(outcome: Outcome, index: int, completion: sd.Completion) -> None:
    nonlocal count
    if not completion.stats.target_passes:
      return  # interrupted before it began
    count += 1
    if options.json:
      fields = report.fields(outcome, index, completion, options.compare)
      shown.line(json.dumps(fields, allow_nan=False))
      return
    if total > 1:
      prompt = outcome.batch.prompts[index]
      title = f"{prompt.name}: {shorten(prompt.text, 48)}"
      shown.status("")
      shown.line(f"== {count} of {total}: {sanitize(title)}")
      shown.tokens(completion.pieces, completion.drafted)
    if not completion.text.endswith("\n"):
      shown.line()
    shown.line()

  def status(number: int, text: str) -> None:
    shown.status(text and f"prompt {number} of {total}: {text}")

  def compared(outcome: Outcome) -> None:
    # Of a single one the table tells.
    if total > 1 and not options.json:
      shown.line(report.compared(outcome, decoder))
      shown.line()

  stream = total == 1 and not options.json
  return _run(
    batch, decoder, options, status, write, compared, shown if stream else None
  )


def _run_into(
  file: OutputFile | FileElsewhere,
  batch: Batch,
  decoder: sd.SpeculativeDecoder,
  options: Options,
) -> tuple[list[Outcome], bool]:
  """Runs what a file of results lacks, and appends it."""
  with (
    file.appending() as lines,
    tqdm.tqdm(
      total=len(batch.prompts),
      initial=file.count,
      unit="text",
      disable=not sys.stderr.isatty(),
    ) as bar,
  ):
    tokens, begin = 0, time.perf_counter()
    complete = True

    def write(outcome: Outcome, index: int, completion: sd.Completion) -> None:
      nonlocal tokens, complete
      # What was interrupted, and all behind it, is left to the next run.
      complete &= completion.finish_reason is not None
      if not complete:
        return
      lines.write(report.fields(outcome, index, completion))
      tokens += completion.stats.new_tokens
      rate = tokens / (time.perf_counter() - begin)
      bar.set_postfix_str(f"{rate:.1f} tokens/s", refresh=False)
      bar.update()

    return _run(
      batch.part(file.count),
      decoder,
      options,
      lambda _, text: bar.set_description_str(text),
      write,
    )


def _run(
  batch: Batch,
  decoder: sd.SpeculativeDecoder,
  options: Options,
  status: Callable[[int, str], None],
  write: Callable[[Outcome, int, sd.Completion], None],
  compared: Callable[[Outcome], None] | None = None,
  streamed: Terminal | None = None,
) -> tuple[list[Outcome], bool]:
  """Runs a batch.

  Args:
    batch: the prompts.
    decoder: what to run them with.
    options: of the command.
    status: shows what goes on with the prompts from the one of this number on.
    write: takes each completion, in their order.
    compared: takes what was compared with plain decoding, when it has been.
    streamed: where the text of the only prompt goes as it comes.

  Returns:
    What was done, and whether Ctrl-C came before the end.
  """
  # Each by itself where that is what is measured; samples share a prefill.
  size = len(batch.prompts)
  if options.compare:
    size = options.batch_size
  elif options.batch_size == 1:
    size = options.num_samples
  done: list[Outcome] = []
  for number, part in enumerate(batch.cut(size)):
    told = functools.partial(status, number * size + 1)
    try:
      outcome, interrupted = _run_part(
        part, decoder, options, told, write, streamed
      )
    except KeyboardInterrupt:
      # While something compiled: what was finished before is kept.
      told("")
      return done, True
    done.append(outcome)
    if compared and outcome.comparison:
      compared(outcome)
    if interrupted:
      return done, True
  return done, False


def _run_part(
  batch: Batch,
  decoder: sd.SpeculativeDecoder,
  options: Options,
  status: Callable[[str], None],
  write: Callable[[Outcome, int, sd.Completion], None],
  streamed: Terminal | None,
) -> tuple[Outcome, bool]:
  """Runs what goes through the rows together; see `_run`."""
  written = 0

  def ended(index: int, completion: sd.Completion) -> None:
    nonlocal written
    written = index + 1
    write(Outcome(batch), index, completion)

  status("compile and prefill")
  generation = batch.start(decoder)
  if streamed is not None:
    result, interrupted = batches.stream(generation, streamed, options.job)
    ended(0, result.completions[0])
  else:
    status("decode")
    # A comparison belongs in the same JSON object.
    later = options.json and options.compare
    result, interrupted = batches.finish(
      generation, None if later else ended, options.job
    )
  del generation  # its cache makes room for the next one's
  status("")
  outcome = Outcome(batch, result)
  if options.compare and not interrupted:
    status("plain decoding, to compare")
    plain = sd.SpeculativeDecoder(decoder.target, sd.NoDraft(), decoder.rule)
    comparison, interrupted = compare.compare(
      batch, decoder, plain, result, options.job
    )
    status("")
    outcome = Outcome(batch, result, comparison)
  # What was interrupted, and what the comparison was missing from.
  for index, completion in list(enumerate(result.completions))[written:]:
    write(outcome, index, completion)
  return outcome, interrupted


def _report(
  done: Sequence[Outcome],
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
