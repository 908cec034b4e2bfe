"""What a run tells about itself: a table for people, JSON for programs."""

import collections
import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import Any

import specdec_jax as sd
from specdec_jax.cli import compare
from specdec_jax.cli.batches import Request
from specdec_jax.cli.compare import Comparison, Speed
from specdec_jax.cli.terminal import Terminal

Rows = Iterator[tuple[str, str]]


@dataclasses.dataclass(frozen=True)
class Batch:
  """A batch and what became of it.

  Attributes:
    request: the prompts.
    result: what was written.
    comparison: plain decoding beside it, if asked for.
  """

  request: Request
  result: sd.GenerationResult
  comparison: Comparison | None = None


def json_lines(batch: Batch, compared: bool) -> Iterator[str]:
  """One JSON object for each prompt.

  The tokens per second of a prompt are its own tokens over the seconds of the
  batch's loop.
  """
  for row, prompt in enumerate(batch.request.prompts):
    fields = {"prompt": prompt.text} | _output(batch.result, row)
    if compared:
      it = batch.comparison
      if it is not None:
        fields["tokens_per_second"] = _rate(
          batch.result, row, it.speculative_speed.decode
        )
      fields["plain"] = it and _output(it.plain, row, it.plain_speed.decode)
      fields["speedup"] = it and it.speedup
      fields["identical"] = it and compare.identical(
        batch.result, it.plain, row
      )
    yield json.dumps(fields, allow_nan=False)


def _output(
  result: sd.GenerationResult, row: int, seconds: float | None = None
) -> dict[str, Any]:
  seconds = result.timing.decode if seconds is None else seconds
  return {
    "text": result.texts[row],
    "tokens": result.tokens[row],
    "finish_reason": result.finish_reasons[row],
    "stats": result.row_stats[row].to_dict(),
    "tokens_per_second": _rate(result, row, seconds),
  }


def _rate(result: sd.GenerationResult, row: int, seconds: float) -> float:
  return result.row_stats[row].new_tokens / max(seconds, 1e-9)


def table(batches: Sequence[Batch], load: float, terminal: Terminal) -> Rows:
  """The figures of all batches in sum."""
  results = [batch.result for batch in batches]
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
  if not any(batch.comparison for batch in batches):
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


def comparison(
  batches: Sequence[Batch], decoder: sd.SpeculativeDecoder
) -> Rows:
  """Both speeds, the speedup, and whether the tokens are identical."""
  pairs = [(b.result, b.comparison) for b in batches if b.comparison]
  if not pairs:
    return
  ours = Speed.total([it.speculative_speed for _, it in pairs])
  plain = Speed.total([it.plain_speed for _, it in pairs])
  rounds = min(it.rounds for _, it in pairs)
  measured = "one run" if rounds == 1 else f"median of {rounds} runs"
  yield f"tokens/s ({measured}, warm)", "speculative     plain   speedup"
  for label, a, b in (
    ("  decode", ours.decode_rate, plain.decode_rate),
    ("  with prefill", ours.whole_rate, plain.whole_rate),
  ):
    ratio = f"{a / b:.2f}x" if b else "-"
    yield label, f"{_figure(a):>11} {_figure(b):>9} {ratio:>9}"
  same = [
    compare.identical(result, it.plain, row)
    for result, it in pairs
    for row in range(len(result.tokens))
  ]
  greedy = all(
    params.temperature == 0
    for batch in batches
    for params in batch.request.sampling
  )
  yield "tokens", _verdict(same, greedy or decoder.rule.coupled)


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
  batches: Sequence[Batch], decoder: sd.SpeculativeDecoder
) -> Iterator[str]:
  """Where tokens that should be identical are not, a line for each prompt."""
  for batch in batches:
    if batch.comparison is None:
      continue
    for row, prompt in enumerate(batch.request.prompts):
      greedy = batch.request.sampling[row].temperature == 0
      if not (greedy or decoder.rule.coupled):
        continue
      ours, plain = batch.result.tokens[row], batch.comparison.plain.tokens[row]
      place = compare.first_difference(ours, plain)
      if place is None:
        continue
      line = (
        f"{prompt.name}: new token {place + 1} is "
        f"{_token(ours[place], decoder)}, plain {_token(plain[place], decoder)}"
      )
      if greedy:
        context = batch.request.tokens[row] + ours[:place]
        gap = compare.top_gap(decoder.target, context)
        line += f"; the two top logits there are {gap:.4g} apart"
      yield line


def _token(token: int, decoder: sd.SpeculativeDecoder) -> str:
  tokenizer = decoder.target.tokenizer
  assert tokenizer is not None  # it has read the prompt
  return f"{tokenizer.decode([token])!r} ({token})"


def _figure(value: float) -> str:
  """A number with three digits, or with all before the point."""
  return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
