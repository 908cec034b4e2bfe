"""What a benchmark says: tables for people."""

from collections.abc import Iterator, Sequence

from specdec_jax.bench.cells import GREEDY
from specdec_jax.bench.suggest import suggest
from specdec_jax.bench.summary import (
  CellSummary,
  Figures,
  Identity,
  Spread,
  StepTime,
  Summary,
)
from specdec_jax.cli.terminal import Terminal, sanitize, shorten

_NOTES = (
  "tokens/s: of the loop, median over prompts and its quartiles; speedup: over "
  "plain decoding of the same engine on the same prompt and round, and of all "
  "in sum; tau: tokens per pass of the target; step: tau / speedup, a block in "
  "plain steps",
  "formula: Leviathan et al., arXiv 2211.17192, theorem 3.8, with the measured "
  "acceptance, v(K+1) and c, and its error; overhead: a block in the loop over "
  "its passes run alone, less 1",
)
_TASK_WIDTH = 14


def show(summary: Summary, shown: Terminal) -> None:
  """Prints the tables."""
  for line in _about(summary):
    shown.line(sanitize(line))
  for (temperature, batch_size), cells in summary.settings().items():
    shown.line()
    rows = "" if batch_size == 1 else f", {batch_size} prompts side by side"
    shown.line(f"temperature {temperature:g}{rows}")
    for table in (_speeds, _blocks, _tasks):
      lines = list(table(cells, shown))
      if lines:
        shown.line()
      for line in lines:
        shown.line(line)
  for curve in summary.curves:
    shown.line()
    points = "  ".join(f"{it.tokens}: {it.cost:.2f}" for it in curve.passes)
    first = curve.passes[0].seconds * 1e3
    shown.line(
      f"v(T), the target's pass over T tokens of {curve.batch_size} rows, "
      f"{curve.slots} slots; v(1) = {first:.2f} ms"
    )
    shown.line(f"  {points}")
  shown.line()
  for line in _NOTES:
    shown.line(line)
  for line in _differences(summary):
    shown.line(sanitize(line))


def _about(summary: Summary) -> Iterator[str]:
  header = summary.header
  pair, machine, settings = (
    header[key] for key in ("pair", "machine", "settings")
  )
  draft = f" with {pair['draft']}" if pair["draft"] else ""
  int8 = f", weights in {pair['quantize']}" if pair["quantize"] else ""
  yield f"{pair['target']}{draft}, {pair['dtype']}{int8}"
  yield (
    f"{machine['cpu']}, {machine['cores']} cores; {machine['devices']}; jax "
    f"{header['versions']['jax']}"
  )
  prompts = header["prompts"]
  tasks = ", ".join(
    f"{shorten(task, 32)} {count}" for task, count in prompts["tasks"].items()
  )
  yield (
    f"{prompts['count']} prompts ({tasks}), at most "
    f"{settings['max_new_tokens']} new tokens, rounds: {settings['rounds']}"
  )
  if header["note"]:
    yield f"note: {header['note']}"


def _width(cells: Sequence[CellSummary]) -> int:
  return max(len(it.cell.name) for it in cells) + 2


def _speeds(cells: Sequence[CellSummary], shown: Terminal) -> Iterator[str]:
  width = _width(cells)
  tau = shown.sign("τ", "tau")
  yield (
    f"  {'':<{width}}{'tokens/s':>8}{'':<16}{'speedup':>8}{'':<13}{'in sum':>7}"
    f"{tau:>7}{'kept':>6}{'step':>6}{'1st token':>12}{'peak':>10}  identical"
  )
  for it in cells:
    total = it.total
    yield (
      f"  {it.cell.name:<{width}}"
      f"{_figure(total.tokens_per_second.median):>8}"
      f"{_quartiles(total.tokens_per_second):<16}"
      f"{_times(total.speedup):>8}"
      f"{_quartiles(total.speedup):<13}"
      f"{_factor(total.total_speedup):>7}"
      f"{total.tokens_per_pass:>7.2f}"
      f"{_percent(total.acceptance_rate):>6}"
      f"{_number(total.step_cost):>6}"
      f"{total.first_token_seconds.median * 1e3:>9.1f} ms"
      f"{_mebibytes(it.peak_bytes):>10}"
      f"  {_identical(it.identity)}"
    ).rstrip()


def _blocks(cells: Sequence[CellSummary], shown: Terminal) -> Iterator[str]:
  """Where the time of a block goes, and what was predicted."""
  del shown
  measured = [it for it in cells if it.time is not None]
  if not measured:
    return
  width = _width(cells)
  yield (
    f"  {'milliseconds':<{width}}{'block':>8}{'draft':>8}{'verify':>8}"
    f"{'accept':>8}{'overhead':>10}{'a':>7}{'c':>7}{'v(K+1)':>8}{'formula':>9}"
    f"{'error':>8}  kept by position"
  )
  for it in measured:
    time = it.time
    assert time is not None
    yield (
      f"  {it.cell.name:<{width}}{_block(time)}{_predicted(it)}"
      f"  {_positions(it.total)}"
    ).rstrip()


def _block(time: StepTime) -> str:
  parts = (time.step, time.draft, time.verify, time.accept)
  cells = "".join(f"{part * 1e3:>8.2f}" for part in parts)
  return f"{cells}{time.overhead:>+10.1%}"


def _predicted(it: CellSummary) -> str:
  found = it.prediction
  if found is None:
    return ""
  return (
    f"{found.acceptance:>7.2f}{found.draft_cost:>7.2f}{found.verify_cost:>8.2f}"
    f"{_factor(found.speedup):>9}{found.error:>+8.1%}"
  )


def _positions(figures: Figures) -> str:
  return " ".join(
    "-" if share is None else f"{share:.0%}"
    for share in figures.acceptance_per_position
  )


def _tasks(cells: Sequence[CellSummary], shown: Terminal) -> Iterator[str]:
  """Speedup in sum and tau of each task, where there are several."""
  del shown
  names = [it.task or "" for it in cells[0].tasks]
  if len(names) < 2:
    return
  width = _width(cells)
  heads = "".join(
    f"{shorten(sanitize(name), _TASK_WIDTH - 1):>{_TASK_WIDTH}}"
    for name in names
  )
  yield f"  {'speedup, tau':<{width}}{heads}"
  for it in cells:
    if it.cell.is_plain:
      continue
    of_tasks = {figures.task: figures for figures in it.tasks}
    row = "".join(
      f"{_task(of_tasks.get(name)):>{_TASK_WIDTH}}" for name in names
    )
    yield f"  {it.cell.name:<{width}}{row}"


def _task(figures: Figures | None) -> str:
  if figures is None:
    return "-"
  return f"{_factor(figures.total_speedup)}, {figures.tokens_per_pass:.2f}"


def _differences(summary: Summary) -> Iterator[str]:
  for it in summary.cells:
    for found in it.identity.differences if it.identity else ():
      kind = "near tie" if found.near_tie else "FAULT"
      yield (
        f"{kind}: {it.cell.full_name}, {found.prompt}: new token "
        f"{found.place + 1} is not plain decoding's; the two top logits there "
        f"are {found.gap:.4g} apart"
      )


def suggestions(summary: Summary, given: Sequence[str]) -> Iterator[str]:
  """Which settings to use, and why.

  Args:
    summary: of the screening.
    given: flags of the models, for the command to use.
  """
  for (temperature, batch_size), cells in summary.settings().items():
    found = suggest(cells)
    best, total = found.best.cell, found.best.total
    rows = "" if batch_size == 1 else f", batch of {batch_size}"
    title = f"temperature {temperature:g}{rows}"
    flags = [*given, "--drafter=none"]
    if best.is_plain:
      yield f"{title}: plain decoding is fastest"
    else:
      assert total.speedup is not None  # not plain decoding
      yield (
        f"{title}: {best.name}, {_times(total.speedup)} as fast as plain "
        f"decoding (quartiles of prompts {total.speedup.low:.2f} and "
        f"{total.speedup.high:.2f}), {_figure(_rate(found.best))} tokens/s "
        f"instead of {_figure(_rate(found.plain))}"
      )
      flags = [*given, f"--drafter={best.drafter}"]
      if best.rule != GREEDY:
        flags.append(f"--rule={best.rule}")
      flags.append(f"--num_draft_tokens={best.num_draft_tokens}")
    for it in found.others:
      as_good = " (as good, within its spread)" if it in found.alike else ""
      yield f"  then {it.cell.name}: {_times(it.total.speedup)}{as_good}"
    if temperature:
      flags.append(f"--temperature={temperature:g}")
    if batch_size > 1:
      flags.append(f"--batch_size={batch_size}")
    yield f"  use: {' '.join(flags)}"


def _rate(it: CellSummary) -> float:
  return it.total.tokens_per_second.median


def _identical(identity: Identity | None) -> str:
  if identity is None:
    return ""
  told = (
    f"{identity.identical}/{identity.identical + len(identity.differences)}"
  )
  if identity.near_ties:
    told += f", near ties {identity.near_ties}"
  if identity.faults:
    told += f", FAULTS {identity.faults}"
  return told


def _figure(value: float) -> str:
  """A number with three digits, or with all before the point."""
  return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _quartiles(spread: Spread | None) -> str:
  if spread is None:
    return ""
  return f" ({_figure(spread.low)}-{_figure(spread.high)})"


def _times(spread: Spread | None) -> str:
  return "" if spread is None else _factor(spread.median)


def _factor(value: float | None) -> str:
  return "" if value is None else f"{value:.2f}x"


def _number(value: float | None) -> str:
  return "" if value is None else f"{value:.2f}"


def _percent(value: float | None) -> str:
  return "" if value is None else f"{value:.0%}"


def _mebibytes(size: int | None) -> str:
  return "-" if size is None else f"{size / 2**20:,.0f} MiB"
