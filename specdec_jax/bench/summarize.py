"""From records to a summary: pure functions of plain values."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from specdec_jax.bench import predict
from specdec_jax.bench.cells import Cell
from specdec_jax.bench.records import (
  Difference,
  PassRecord,
  Record,
  RunRecord,
)
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


def summarize(header: Mapping[str, Any], records: Iterable[Record]) -> Summary:
  """What the records of a benchmark come to, as far as they go.

  Args:
    header: of the results.
    records: all of them.
  """
  runs: dict[Cell, list[RunRecord]] = {}
  passes: dict[Cell, list[PassRecord]] = {}
  for record in records:
    if isinstance(record, RunRecord):
      runs.setdefault(record.cell, []).append(record)
    else:
      passes.setdefault(record.cell, []).append(record)
  cells = tuple(
    _cell(cell, some, runs[cell.plain], passes) for cell, some in runs.items()
  )
  return Summary(
    header=header,
    cells=cells,
    curves=_curves(passes),
    memory=str(header.get("memory", "")),
  )


def spread(values: Iterable[float]) -> Spread:
  """Median and quartiles; the value itself where there is one."""
  values = sorted(values)
  if len(values) == 1:
    return Spread(values[0], values[0], values[0])
  low, median, high = statistics.quantiles(values, n=4, method="inclusive")
  return Spread(median, low, high)


def _cell(
  cell: Cell,
  runs: Runs,
  plain: Runs,
  passes: Mapping[Cell, Sequence[PassRecord]],
) -> CellSummary:
  total = _figures(None, cell, runs, plain)
  tasks = dict.fromkeys(run.task for run in runs)
  time = _time(runs, passes.get(cell, ()))
  prediction = None
  if time is not None and not cell.is_plain and total.total_speedup:
    of_plain = _parts(passes[cell.plain])
    if of_plain is not None:
      prediction = _prediction(cell, total, runs, time, sum(of_plain))
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
      ratios.setdefault(run.prompts, []).append(run.rate / base.rate)
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


def _parts(
  passes: Sequence[PassRecord],
) -> tuple[float, float, float] | None:
  """Draft, verify and accept: medians."""
  if not passes:
    return None
  return (
    statistics.median(it.draft for it in passes),
    statistics.median(it.verify for it in passes),
    statistics.median(it.accept for it in passes),
  )


def _time(runs: Runs, passes: Sequence[PassRecord]) -> StepTime | None:
  """Over the runs with caches of the size that the passes were timed with."""
  parts = _parts(passes)
  if parts is None:
    return None
  slots = passes[0].slots
  alike = [run for run in runs if run.slots == slots and run.steps]
  if not alike:
    return None
  step = statistics.median(run.decode / run.steps for run in alike)
  return StepTime(step, *parts)


def _prediction(
  cell: Cell, total: Figures, runs: Runs, time: StepTime, plain: float
) -> Prediction:
  """Args: `plain` is the seconds of a plain step, its parts run alone."""
  measured = total.total_speedup
  assert measured is not None  # not of plain decoding
  drafted, length = total.drafted_per_position, cell.num_draft_tokens
  rate = predict.acceptance(drafted, total.accepted_per_position)
  tau = predict.tokens_per_pass(
    rate, drafted, sum(run.row_passes for run in runs)
  )
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


def _curves(
  passes: Mapping[Cell, Sequence[PassRecord]],
) -> tuple[VerifyCurve, ...]:
  """v(T) of each batch size, over all temperatures and drafters."""
  sizes: dict[int, dict[int, list[float]]] = {}
  slots: dict[int, int] = {}
  for cell, some in passes.items():
    by_tokens = sizes.setdefault(cell.batch_size, {})
    slots.setdefault(cell.batch_size, some[0].slots)
    by_tokens.setdefault(cell.num_draft_tokens + 1, []).extend(
      it.verify for it in some
    )
  return tuple(
    VerifyCurve(
      size,
      slots[size],
      tuple(
        VerifyPass(
          tokens,
          statistics.median(times),
          statistics.median(times) / statistics.median(by_tokens[1]),
        )
        for tokens, times in sorted(by_tokens.items())
      ),
    )
    for size, by_tokens in sizes.items()
  )
