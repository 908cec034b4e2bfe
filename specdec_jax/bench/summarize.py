"""From records to a summary: pure functions of plain values."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from specdec_jax.bench import predict
from specdec_jax.bench.cells import Cell
from specdec_jax.bench.records import Difference, PassTimes, RunRecord
from specdec_jax.bench.summary import (
  CellSummary,
  Figures,
  Identity,
  Prediction,
  Spread,
  StepTime,
  Summary,
  VerifyCurve,
  VerifyPass,
)

Runs = Sequence[RunRecord]
_Key = tuple[tuple[str, ...], int]


def summarize(
  header: Mapping[str, Any], records: Iterable[RunRecord]
) -> Summary:
  """What the records of a benchmark come to, as far as they go.

  Args:
    header: of the results.
    records: all of them.
  """
  runs: dict[Cell, list[RunRecord]] = {}
  for record in records:
    runs.setdefault(record.cell, []).append(record)
  cells = (_cell(cell, some, runs[cell.plain]) for cell, some in runs.items())
  return Summary(
    header=header,
    cells=tuple(cells),
    curves=_curves(runs),
    memory=str(header.get("memory", "")),
  )


def spread(values: Iterable[float]) -> Spread:
  """Median and quartiles; the value itself where there is one."""
  values = sorted(values)
  if len(values) == 1:
    return Spread(values[0], values[0], values[0])
  low, median, high = statistics.quantiles(values, n=4, method="inclusive")
  return Spread(median, low, high)


def _cell(cell: Cell, runs: Runs, plain: Runs) -> CellSummary:
  total = _figures(None, cell, runs, plain)
  tasks = dict.fromkeys(run.task for run in runs)
  time, of_plain = _time(runs), _time(plain)
  prediction = None
  if time and of_plain and not cell.is_plain and total.total_speedup:
    prediction = _prediction(cell, total, runs, time, of_plain)
  return CellSummary(
    cell=cell,
    total=total,
    tasks=tuple(
      _figures(
        task,
        cell,
        [run for run in runs if run.task == task],
        [run for run in plain if run.task == task],
      )
      for task in tasks
    ),
    time=time,
    prediction=prediction,
    identity=_identity(runs),
    peak_bytes=max(
      (run.peak_bytes for run in runs if run.peak_bytes is not None),
      default=None,
    ),
  )


def _figures(task: str | None, cell: Cell, runs: Runs, plain: Runs) -> Figures:
  passes = sum(run.row_passes for run in runs)
  new_tokens = sum(run.new_tokens for run in runs)
  drafted = _by_place(run.drafted for run in runs)
  accepted = _by_place(run.accepted for run in runs)
  tau = new_tokens / passes if passes else float("nan")
  speedup = total_speedup = None
  if not cell.is_plain:
    theirs = {_key(run): run for run in plain}
    pairs = [(run, theirs[_key(run)]) for run in runs]
    ratios: dict[tuple[str, ...], list[float]] = {}
    for run, base in pairs:
      if not base.rate:
        continue  # a peer's prompt brought all of the text
      ratios.setdefault(run.prompts, []).append(run.rate / base.rate)
    if ratios:
      speedup = spread(map(statistics.median, ratios.values()))
      total_speedup = _rate(runs) / _rate([base for _, base in pairs])
  return Figures(
    task=task,
    prompts=sum(map(len, {run.prompts for run in runs})),
    new_tokens=new_tokens,
    tokens_per_second=_over_prompts(runs, lambda run: run.rate),
    whole_tokens_per_second=_over_prompts(runs, lambda run: run.whole_rate),
    first_token_seconds=_over_prompts(runs, lambda run: run.first_token),
    tokens_per_pass=tau,
    acceptance_rate=sum(accepted) / sum(drafted) if sum(drafted) else None,
    drafted_per_position=drafted,
    accepted_per_position=accepted,
    speedup=speedup,
    total_speedup=total_speedup,
    step_cost=tau / total_speedup if total_speedup else None,
  )


def _key(run: RunRecord) -> _Key:
  return run.prompts, run.round


def _by_place(counts: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
  return tuple(map(sum, zip(*counts, strict=True)))


def _over_prompts(runs: Runs, figure: Callable[[RunRecord], float]) -> Spread:
  """Of each prompt the median of its rounds, over all prompts."""
  rounds: dict[tuple[str, ...], list[float]] = {}
  for run in runs:
    rounds.setdefault(run.prompts, []).append(figure(run))
  return spread(map(statistics.median, rounds.values()))


def _rate(runs: Runs) -> float:
  """All tokens over all seconds."""
  seconds = sum(run.decode for run in runs)
  return sum(run.decode_tokens for run in runs) / max(seconds, 1e-9)


def _time(runs: Runs) -> StepTime | None:
  """Over the runs whose passes were timed; None without any."""
  pairs = [(run, run.passes) for run in runs if run.passes and run.steps]
  if not pairs:
    return None
  return StepTime(
    step=statistics.median(run.step for run, _ in pairs),
    draft=statistics.median(parts.draft for _, parts in pairs),
    verify=statistics.median(parts.verify for _, parts in pairs),
    accept=statistics.median(parts.accept for _, parts in pairs),
    overhead=statistics.median(run.step / parts.total for run, parts in pairs)
    - 1,
  )


def _prediction(
  cell: Cell, total: Figures, runs: Runs, time: StepTime, of_plain: StepTime
) -> Prediction:
  measured = total.total_speedup
  assert measured is not None  # not of plain decoding
  drafted, length = total.drafted_per_position, cell.num_draft_tokens
  rate = predict.acceptance(drafted, total.accepted_per_position)
  tau = predict.tokens_per_pass(
    rate, drafted, sum(run.row_passes for run in runs)
  )
  plain = of_plain.verify + of_plain.accept
  draft_cost = time.draft / length / plain
  verify_cost = (time.verify + time.accept) / plain
  costs = draft_cost, verify_cost, length
  speedup = predict.speedup(tau, *costs)
  cost_speedup = predict.speedup(total.tokens_per_pass, *costs)
  return Prediction(
    acceptance=rate,
    draft_cost=draft_cost,
    verify_cost=verify_cost,
    tokens_per_pass=tau,
    speedup=speedup,
    error=speedup / measured - 1,
    cost_speedup=cost_speedup,
    cost_error=cost_speedup / measured - 1,
  )


def _identity(runs: Runs) -> Identity | None:
  compared = {run.prompts: run.compared for run in runs}
  if not sum(compared.values()):
    return None
  differences: dict[str, Difference] = {}
  for run in runs:
    for it in run.differences:
      differences.setdefault(it.prompt, it)
  return Identity(
    sum(compared.values()) - len(differences), tuple(differences.values())
  )


def _curves(runs: Mapping[Cell, Runs]) -> tuple[VerifyCurve, ...]:
  """v(T) of each batch size, over all temperatures and drafters."""
  sizes: dict[int, dict[int, list[PassTimes]]] = {}
  for cell, some in runs.items():
    timed = [run.passes for run in some if run.passes is not None]
    if timed:
      by_tokens = sizes.setdefault(cell.batch_size, {})
      by_tokens.setdefault(cell.num_draft_tokens + 1, []).extend(timed)
  return tuple(
    _curve(size, by_tokens) for size, by_tokens in sorted(sizes.items())
  )


def _curve(
  size: int, by_tokens: Mapping[int, Sequence[PassTimes]]
) -> VerifyCurve:
  seconds = {
    tokens: statistics.median(it.verify for it in times)
    for tokens, times in sorted(by_tokens.items())
  }
  points = (
    VerifyPass(tokens, some, some / seconds[1])
    for tokens, some in seconds.items()
  )
  return VerifyCurve(size, by_tokens[1][0].slots, tuple(points))
