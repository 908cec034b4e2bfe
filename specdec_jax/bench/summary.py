"""What the records of a benchmark come to."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from specdec_jax.bench.cells import Cell
from specdec_jax.bench.records import Difference


@dataclasses.dataclass(frozen=True)
class Spread:
  """How a figure is distributed over prompts.

  Attributes:
    median: of all.
    low: the first quartile: a quarter of the prompts is below.
    high: the third quartile.
  """

  median: float
  low: float
  high: float


@dataclasses.dataclass(frozen=True)
class Figures:
  """The speed of a cell over the prompts of a task, or over all.

  Of each prompt (with a batch: of each batch) the median of its rounds counts.

  Attributes:
    task: its name; None for all of them.
    prompts: how many prompts.
    new_tokens: tokens written, in all rounds.
    tokens_per_second: of the loop, prefill apart; with a batch, of all rows
      together.
    whole_tokens_per_second: the same, prefill included.
    first_token_seconds: until the first block is there: prefill and one block.
    tokens_per_pass: tau, tokens written per pass of the target and row.
    acceptance_rate: accepted / drafted, in [0, 1]; None without drafts.
    drafted_per_position: drafts submitted at each place of the block, of K; ()
      where the engine does not tell.
    accepted_per_position: drafts kept at each place.
    speedup: tokens per second over those of plain decoding of the same engine
      on the same prompt in the same round; None for plain decoding itself.
    total_speedup: the same of sums: all tokens over all seconds, against all
      tokens over all seconds of plain decoding.
    step_cost: tokens_per_pass / total_speedup: the time of a block in plain
      steps.
  """

  task: str | None
  prompts: int
  new_tokens: int
  tokens_per_second: Spread
  whole_tokens_per_second: Spread
  first_token_seconds: Spread
  tokens_per_pass: float
  acceptance_rate: float | None
  drafted_per_position: tuple[int, ...]
  accepted_per_position: tuple[int, ...]
  speedup: Spread | None
  total_speedup: float | None
  step_cost: float | None

  @property
  def acceptance_per_position(self) -> tuple[float | None, ...]:
    """Share of blocks that kept the draft at each place, and all before it.

    Of those that drafted it; None where none did.
    """
    places = zip(
      self.drafted_per_position, self.accepted_per_position, strict=True
    )
    return tuple(
      kept / drafted if drafted else None for drafted, kept in places
    )


@dataclasses.dataclass(frozen=True)
class StepTime:
  """Where the time of a block goes; seconds.

  Attributes:
    step: of a block as it was measured in the loop; this and the parts are
      medians over the runs after which the parts were timed.
    draft: of the drafter's proposal of K tokens, run alone.
    verify: of the target's pass that judges K + 1 tokens, run alone.
    accept: of the sampling law and the rule, run alone.
    overhead: what the engine adds: step / (draft + verify + accept) - 1, the
      median of each run with the parts that were timed right after it.
  """

  step: float
  draft: float
  verify: float
  accept: float
  overhead: float


@dataclasses.dataclass(frozen=True)
class Prediction:
  """What Leviathan's formula makes of the measured costs; see `predict`.

  Attributes:
    acceptance: a, the probability that a draft is kept, all before it kept;
      from what was measured.
    draft_cost: c, a drafted token's time in plain steps.
    verify_cost: v(K + 1), a verifying pass and the rule in plain steps.
    tokens_per_pass: tau as the formula has it.
    speedup: as the formula has it, from a, c and v.
    error: speedup over the measured total_speedup, less 1.
    cost_speedup: from c, v and the measured tau.
    cost_error: cost_speedup over the measured total_speedup, less 1.
  """

  acceptance: float
  draft_cost: float
  verify_cost: float
  tokens_per_pass: float
  speedup: float
  error: float
  cost_speedup: float
  cost_error: float


@dataclasses.dataclass(frozen=True)
class Identity:
  """How many greedy texts are plain decoding's, token for token.

  Attributes:
    identical: how many prompts.
    differences: the others, each in the first round that shows it.
  """

  identical: int
  differences: tuple[Difference, ...]

  @property
  def near_ties(self) -> int:
    return sum(it.near_tie for it in self.differences)

  @property
  def faults(self) -> int:
    return len(self.differences) - self.near_ties


@dataclasses.dataclass(frozen=True)
class CellSummary:
  """All about a cell.

  Attributes:
    cell: which.
    total: over all prompts.
    tasks: over those of each task, in the order of the workload.
    time: where the time of a block goes; None where it was not measured, as
      with a peer.
    prediction: None for plain decoding, and where passes were not measured.
    identity: at temperature 0; None for plain decoding, and above.
    peak_bytes: the most memory; None where it cannot be told.
  """

  cell: Cell
  total: Figures
  tasks: tuple[Figures, ...]
  time: StepTime | None
  prediction: Prediction | None
  identity: Identity | None
  peak_bytes: int | None


@dataclasses.dataclass(frozen=True)
class VerifyPass:
  """A point of the curve v(T).

  Attributes:
    tokens: T = K + 1, tokens that the pass judges in each row.
    seconds: it takes, run alone.
    cost: v(T) = seconds over those of T = 1.
  """

  tokens: int
  seconds: float
  cost: float


@dataclasses.dataclass(frozen=True)
class VerifyCurve:
  """The target's pass against the tokens that it judges.

  Attributes:
    batch_size: rows.
    slots: cache slots of a row, S.
    passes: by T, that of T = 1 first.
  """

  batch_size: int
  slots: int
  passes: tuple[VerifyPass, ...]


@dataclasses.dataclass(frozen=True)
class Summary:
  """A benchmark's results.

  Attributes:
    header: what was measured on what: see `store.header`.
    cells: by setting (temperature, batch size), plain decoding first in each.
    curves: one for each batch size.
    memory: what `peak_bytes` counts, in words.
  """

  header: Mapping[str, Any]
  cells: tuple[CellSummary, ...]
  curves: tuple[VerifyCurve, ...]
  memory: str

  @property
  def faults(self) -> int:
    """Greedy texts that are not plain decoding's, near ties apart."""
    return sum(it.identity.faults for it in self.cells if it.identity)

  def settings(self) -> dict[tuple[float, int], list[CellSummary]]:
    """The cells of each temperature and batch size, in their order."""
    found: dict[tuple[float, int], list[CellSummary]] = {}
    for it in self.cells:
      key = it.cell.temperature, it.cell.batch_size
      found.setdefault(key, []).append(it)
    return found

  def to_dict(self) -> dict[str, Any]:
    """For JSON; derived figures are in it too."""
    fields = dataclasses.asdict(self)
    for told, it in zip(fields["cells"], self.cells, strict=True):
      told["name"] = it.cell.name
      for figures, of in zip(
        (told["total"], *told["tasks"]), (it.total, *it.tasks), strict=True
      ):
        figures["acceptance_per_position"] = of.acceptance_per_position
      if it.identity is not None:
        told["identity"]["near_ties"] = it.identity.near_ties
        told["identity"]["faults"] = it.identity.faults
    return fields
