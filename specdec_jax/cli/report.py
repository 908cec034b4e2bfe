"""What a run tells about itself: a table for people, JSON for programs."""

import collections
import dataclasses
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import specdec_jax as sd
from specdec_jax.bench import identity
from specdec_jax.cli import compare
from specdec_jax.cli.batches import Batch
from specdec_jax.cli.compare import Comparison, Speed
from specdec_jax.cli.terminal import Terminal

Rows = Iterator[tuple[str, str]]


@dataclasses.dataclass(frozen=True)
class Outcome:
  """A batch and what became of it.

  Attributes:
    batch: the prompts.
    result: what was written; None before its end.
    comparison: plain decoding beside it, if asked for.
  """

  batch: Batch
  result: sd.GenerationResult | None = None
  comparison: Comparison | None = None


def fields(
  outcome: Outcome,
  index: int,
  completion: sd.Completion,
  compared: bool = False,
) -> dict[str, Any]:
  """What a program wants to know of a text, for JSON.

  Args:
    outcome: what it is a part of.
    index: its number there.
    completion: the text.
    compared: whether a comparison was asked for.
  """
  fields = {"prompt": outcome.batch.prompts[index].text} | _output(completion)
  if not compared:
    return fields
  it = outcome.comparison
  if it is None:  # interrupted
    return fields | dict.fromkeys(("plain", "speedup", "identical"))
  plain = it.plain.completions[index]
  return fields | {
    "tokens_per_second": _rate(completion, it.speculative_speed.decode),
    "plain": _output(plain, it.plain_speed.decode),
    "speedup": it.speedup,
    "identical": compare.identical(completion, plain),
  }


def _output(
  completion: sd.Completion, seconds: float | None = None
) -> dict[str, Any]:
  return {
    "text": completion.text,
    "tokens": completion.tokens,
    "finish_reason": completion.finish_reason,
    "stats": completion.stats.to_dict(),
    "tokens_per_second": _rate(completion, seconds or completion.seconds),
  }


def _rate(completion: sd.Completion, seconds: float) -> float:
  return completion.stats.new_tokens / max(seconds, 1e-9)


def table(done: Sequence[Outcome], load: float, terminal: Terminal) -> Rows:
  """The figures of all batches in sum."""
  results = [outcome.result for outcome in done if outcome.result]
  stats = sd.Stats.total(row for result in results for row in result.row_stats)
  reasons = collections.Counter(
    reason or "interrupted"
    for result in results
    for reason in result.finish_reasons
  )
  if reasons.total() > 1:
    ended = (f"{count} {reason}" for reason, count in reasons.most_common())
    yield "prompts", f"{reasons.total()} ({', '.join(ended)})"
    yield "new tokens", str(stats.new_tokens)
  else:
    yield "new tokens", f"{stats.new_tokens} (ended: {next(iter(reasons))})"
  yield "target passes", str(stats.target_passes)
  yield (
    f"tokens per pass ({terminal.sign('τ', 'tau')})",
    f"{stats.tokens_per_target_pass:.2f}" if stats.target_passes else "-",
  )
  yield from _acceptance(stats, terminal)
  if not any(outcome.comparison for outcome in done):
    speed = Speed.total([Speed.median([result]) for result in results])
    yield (
      "speed",
      f"{_figure(speed.decode_rate)} tokens/s, with prefill "
      f"{_figure(speed.whole_rate)}",
    )
  compile_time = sum(result.timing.compile for result in results)
  prefill = sum(result.timing.prefill for result in results)
  decode = sum(result.timing.decode for result in results)
  yield (
    "time",
    f"load {load:.2f} s, compile {compile_time:.2f} s, "
    f"prefill {prefill:.2f} s, decode {decode:.2f} s",
  )


def _acceptance(stats: sd.Stats, terminal: Terminal) -> Rows:
  """Acceptance, as a whole and by position as a bar chart."""
  if not stats.draft_tokens:
    return
  yield (
    "accepted drafts",
    f"{stats.accepted_tokens} of {stats.draft_tokens}, "
    f"{stats.acceptance_rate:.1%}",
  )
  places = zip(
    stats.accepted_per_position, stats.drafted_per_position, strict=True
  )
  for place, (accepted, drafted) in enumerate(places, 1):
    if drafted:
      share = accepted / drafted
      yield (
        f"  position {place}",
        f"{terminal.bar(share)} {share:4.0%}  {accepted}/{drafted}",
      )


def compared(outcome: Outcome, decoder: sd.SpeculativeDecoder) -> str:
  """What comparing one of several batches showed, in a line."""
  assert outcome.result is not None and outcome.comparison is not None
  stats, it = outcome.result.stats, outcome.comparison
  line = (
    f"{stats.new_tokens} tokens, {stats.tokens_per_target_pass:.2f} per pass; "
    f"{_figure(it.speculative_speed.decode_rate)} tokens/s, plain "
    f"{_figure(it.plain_speed.decode_rate)}"
  )
  if it.speedup is not None:
    line += f", {it.speedup:.2f}x as fast"
  if not _same_expected([outcome], decoder):
    return line
  return f"{line}; tokens {_verdict(_same([outcome]), True)}"


def comparison(done: Sequence[Outcome], decoder: sd.SpeculativeDecoder) -> Rows:
  """Both speeds, the speedup, and whether the tokens are identical."""
  found = [outcome.comparison for outcome in done if outcome.comparison]
  if not found:
    return
  ours = Speed.total([it.speculative_speed for it in found])
  plain = Speed.total([it.plain_speed for it in found])
  rounds = min(it.rounds for it in found)
  measured = "one run" if rounds == 1 else f"median of {rounds} runs"
  yield f"tokens/s ({measured}, warm)", "speculative     plain   speedup"
  for label, a, b in (
    ("  decode", ours.decode_rate, plain.decode_rate),
    ("  with prefill", ours.whole_rate, plain.whole_rate),
  ):
    ratio = f"{a / b:.2f}x" if b else "-"
    yield label, f"{_figure(a):>11} {_figure(b):>9} {ratio:>9}"
  speedups = [it.speedup for it in found if it.speedup is not None]
  if len(speedups) > 1:
    passes = [
      outcome.result.stats.tokens_per_target_pass
      for outcome in done
      if outcome.result and outcome.comparison
    ]
    batches = "prompts" if len(found) == len(_same(done)) else "batches"
    yield (
      f"median of {len(found)} {batches}",
      f"{statistics.median(passes):.2f} tokens per pass, "
      f"{statistics.median(speedups):.2f}x as fast",
    )
  yield "tokens", _verdict(_same(done), _same_expected(done, decoder))


def _same(done: Sequence[Outcome]) -> list[bool | None]:
  """Whether the tokens are identical, prompt by prompt."""
  return [compare.identical(a, b) for _, a, b in _pairs(done)]


def _same_expected(
  done: Sequence[Outcome], decoder: sd.SpeculativeDecoder
) -> bool:
  """Whether the tokens should be identical."""
  return decoder.rule.coupled or all(
    params.temperature == 0
    for outcome in done
    for params in outcome.batch.sampling
  )


def _pairs(
  done: Sequence[Outcome],
) -> Iterator[tuple[tuple[Batch, int], sd.Completion, sd.Completion]]:
  """What was written with drafts and without, prompt by prompt."""
  for outcome in done:
    if outcome.result is None or outcome.comparison is None:
      continue
    for index, (ours, plain) in enumerate(
      zip(
        outcome.result.completions,
        outcome.comparison.plain.completions,
        strict=True,
      )
    ):
      yield (outcome.batch, index), ours, plain


def _verdict(same: Sequence[bool | None], expected: bool) -> str:
  differ = same.count(False)
  if differ:
    verdict = "differ"
    if len(same) > 1:
      verdict += f" in {differ} of {len(same)} prompts"
    if not expected:
      verdict += (
        ", as is to be expected: sampling with this rule gives other tokens of "
        "the same kind"
      )
    return verdict
  if None in same:
    return "identical as far as both got"
  return "identical"


def differences(
  done: Sequence[Outcome], decoder: sd.SpeculativeDecoder
) -> Iterator[str]:
  """Where tokens that should be identical are not, a line for each prompt."""
  for (batch, index), ours, plain in _pairs(done):
    params = batch.sampling[index]
    if not (params.temperature == 0 or decoder.rule.coupled):
      continue
    place = identity.first_difference(ours.tokens, plain.tokens)
    if place is None:
      continue
    line = (
      f"{batch.prompts[index].name}: new token {place + 1} is "
      f"{_token(ours.tokens[place], decoder)}, plain "
      f"{_token(plain.tokens[place], decoder)}"
    )
    if params.temperature == 0 and not params.controlled:
      context = batch.tokens[index] + ours.tokens[:place]
      tokens = ours.tokens[place], plain.tokens[place]
      gap = identity.tie(decoder.target, context, tokens).gap
      line += f"; the two top logits there are {gap:.4g} apart"
    yield line


def _token(token: int, decoder: sd.SpeculativeDecoder) -> str:
  tokenizer = decoder.target.tokenizer
  assert tokenizer is not None  # it has read the prompt
  return f"{tokenizer.decode([token])!r} ({token})"


def _figure(value: float) -> str:
  """A number with three digits, or with all before the point."""
  return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
