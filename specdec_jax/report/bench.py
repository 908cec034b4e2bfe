"""The page of a benchmark, and its plots as files."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from specdec_jax.bench.suggest import suggest
from specdec_jax.bench.summary import CellSummary, Identity, Summary
from specdec_jax.report import charts, page
from specdec_jax.report.markup import Html, tag
from specdec_jax.report.plots import Plot
from specdec_jax.training.files import write_whole

_MIB = 2**20
_NONE = "-"


def bench_page(summary: Summary) -> str:
  """A file of HTML with the plots and tables of a benchmark."""
  lead = page.settings(dict(_brief(summary.header)))
  curve = charts.verify(summary.curves)
  return page.page(
    "Benchmark",
    *(_setting(*it) for it in summary.settings().items()),
    page.section("The target alone", curve.html()) if curve else "",
    page.section(
      "What was measured on what",
      page.settings(dict(_flat(summary.header))),
      note=f"Peak memory counts {summary.memory}." if summary.memory else None,
    ),
    lead=lead,
  )


def write_pngs(folder: Path, summary: Summary) -> list[Path]:
  """Writes every plot of the page as a PNG.

  Args:
    folder: made if it is not there.
    summary: of the benchmark.

  Returns:
    The files: `temperature-0-batch-1-speed.png` and the like.

  Raises:
    OSError: one cannot be written.
  """
  folder.mkdir(parents=True, exist_ok=True)
  written = []
  for name, plot in _all_plots(summary):
    path = folder / f"{name}.png"
    write_whole(path, plot.png())
    written.append(path)
  return written


def _all_plots(summary: Summary) -> Iterator[tuple[str, Plot]]:
  for (temperature, batch_size), cells in summary.settings().items():
    for plot in _plots(cells):
      setting = f"temperature-{temperature:g}-batch-{batch_size}"
      yield f"{setting}-{plot.name}", plot
  if curve := charts.verify(summary.curves):
    yield curve.name, curve


def _plots(cells: Sequence[CellSummary]) -> list[Plot]:
  drawn = (charts.speed, charts.acceptance, charts.tasks, charts.time)
  return [plot for draw in drawn if (plot := draw(cells)) is not None]


def _setting(setting: tuple[float, int], cells: Sequence[CellSummary]) -> Html:
  """All about one temperature and batch size."""
  temperature, batch_size = setting
  rows = "one row" if batch_size == 1 else f"{batch_size} rows"
  law = "greedy" if temperature == 0 else f"temperature {temperature:g}"
  return page.section(
    f"{law[0].upper()}{law[1:]}, {rows}",
    _best(cells),
    *(plot.html() for plot in _plots(cells)),
    tag("h3", "All settings"),
    _table(cells),
  )


def _best(cells: Sequence[CellSummary]) -> Html | None:
  """The fastest of them in figures."""
  if not any(it.cell.is_plain for it in cells):
    return None  # interrupted before there was a baseline
  best = suggest(cells).best
  total = best.total
  speedup = total.total_speedup
  pairs = [
    (
      "fastest setting",
      best.cell.name,
      f"{total.tokens_per_second.median:.1f} tokens per second",
    ),
    (
      "speedup",
      "1x" if speedup is None else f"{speedup:.2f}x",
      "over plain decoding",
    ),
    ("tokens per pass, τ", f"{total.tokens_per_pass:.2f}", None),
  ]
  if best.identity is not None:
    pairs.append(
      ("identical to plain", *_identity(best.identity, total.prompts))
    )
  elif total.acceptance_rate is not None:
    pairs.append(("drafts kept", f"{total.acceptance_rate:.0%}", None))
  return page.figures(*pairs)


def _identity(identity: Identity, prompts: int) -> tuple[str, str]:
  """How many texts are plain decoding's, and what the others are."""
  remarks = [
    f"{count} {name}{'s' * (count > 1)}"
    for count, name in (
      (identity.near_ties, "near tie"),
      (identity.faults, "fault"),
    )
    if count
  ]
  return f"{identity.identical} of {prompts}", ", ".join(remarks)


def _table(cells: Sequence[CellSummary]) -> Html:
  rows = []
  for it in cells:
    total = it.total
    speed = total.tokens_per_second
    rows.append(
      (
        it.cell.name,
        f"{speed.median:.1f}",
        f"{speed.low:.1f} to {speed.high:.1f}",
        _or_none(total.total_speedup, "{:.2f}x"),
        f"{total.tokens_per_pass:.2f}",
        _or_none(total.acceptance_rate, "{:.0%}"),
        _or_none(total.step_cost, "{:.2f}"),
        f"{1e3 * total.first_token_seconds.median:.1f}",
        _or_none(it.time.overhead if it.time else None, "{:+.1%}"),
        _or_none(it.peak_bytes and it.peak_bytes / _MIB, "{:.0f}"),
        _same(it),
      )
    )
  return page.table(
    (
      "",
      "tokens/s",
      "quartiles",
      "speedup",
      "τ",
      "kept",
      "step cost",
      "first token, ms",
      "overhead",
      "peak, MiB",
      "as plain",
    ),
    rows,
    "A step's cost is in steps of plain decoding: τ / speedup. Its overhead is "
    "over the sum of its passes run alone.",
  )


def _same(it: CellSummary) -> str:
  if it.identity is None:
    return _NONE
  share, remark = _identity(it.identity, it.total.prompts)
  return share if not remark else f"{share} ({remark})"


def _or_none(value: float | None, form: str) -> str:
  return _NONE if value is None else form.format(value)


def _brief(header: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
  """The most important of what was measured on what."""
  pair, machine = header.get("pair", {}), header.get("machine", {})
  for name, value in (
    ("target", pair.get("target")),
    ("draft", pair.get("draft")),
    ("dtype", pair.get("dtype")),
    ("weights", pair.get("quantize")),
    ("on", machine.get("cpu")),
    ("devices", machine.get("devices")),
    ("prompts", header.get("prompts", {}).get("count")),
    ("note", header.get("note")),
  ):
    if value:
      yield name, str(value)


def _flat(
  values: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, str]]:
  """Names and values of nested mappings."""
  for key, value in values.items():
    name = f"{prefix}{key}".replace("_", " ")
    if isinstance(value, Mapping):
      yield from _flat(value, f"{name}: ")
    elif isinstance(value, list | tuple):
      yield name, ", ".join(map(str, value))
    elif value not in (None, ""):
      yield name, str(value)
