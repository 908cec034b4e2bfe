"""What is written down of each run: plain values, a line of JSON each."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from specdec_jax.bench.cells import Cell


@dataclasses.dataclass(frozen=True)
class Difference:
  """Where a greedy text is not plain decoding's.

  Attributes:
    prompt: its name.
    place: the first new token that differs, counted from 0.
    gap: how far apart the target's two largest logits are there.
    near_tie: whether rounding explains it; else it is a fault.
  """

  prompt: str
  place: int
  gap: float
  near_tie: bool


@dataclasses.dataclass(frozen=True)
class PassTimes:
  """The parts of a block, each run alone; seconds.

  Attributes:
    slots: cache slots of a row, S.
    draft: of the drafter's proposal.
    verify: of the target's pass.
    accept: of the sampling law and the rule.
  """

  slots: int
  draft: float
  verify: float
  accept: float

  @property
  def total(self) -> float:
    return self.draft + self.verify + self.accept


@dataclasses.dataclass(frozen=True)
class RunRecord:
  """One run of a cell: a prompt, or a batch of them, in one round.

  Attributes:
    cell: how.
    task: of the prompts.
    prompts: their names.
    round: which, from 0.
    slots: cache slots of a row, S; None where the engine does not tell.
    new_tokens: written, of all rows.
    row_passes: passes of the target in which a row ran, of all rows in sum.
    drafted: drafts submitted at each place of the block, of all rows; ()
      where the engine does not tell.
    accepted: drafts kept at each place.
    prefill: seconds of the prompts.
    first_token: seconds until the first block is there.
    decode: seconds of the loop.
    decode_tokens: of new_tokens, those written in those seconds.
    steps: passes of the target in those seconds, all rows together.
    compile: seconds of compiling before, in no other figure.
    peak_bytes: most memory; None where it cannot be told.
    finish_reasons: of each prompt; () where the engine does not tell.
    compared: prompts whose text was compared with plain decoding's.
    differences: those of them that differ.
    passes: the parts of a block, timed right after the run; None where they
      were not.
  """

  cell: Cell
  task: str
  prompts: tuple[str, ...]
  round: int
  slots: int | None
  new_tokens: int
  row_passes: int
  drafted: tuple[int, ...]
  accepted: tuple[int, ...]
  prefill: float
  first_token: float
  decode: float
  decode_tokens: int
  steps: int
  compile: float
  peak_bytes: int | None
  finish_reasons: tuple[str, ...]
  compared: int
  differences: tuple[Difference, ...]
  passes: PassTimes | None

  @property
  def step(self) -> float:
    """Seconds of a block."""
    return self.decode / max(self.steps, 1)

  @property
  def rate(self) -> float:
    """Tokens per second of the loop."""
    return self.decode_tokens / max(self.decode, 1e-9)

  @property
  def whole_rate(self) -> float:
    """Tokens per second, prefill included."""
    return self.new_tokens / max(self.prefill + self.decode, 1e-9)


def to_fields(record: RunRecord) -> dict[str, Any]:
  """A record as JSON has it."""
  return dataclasses.asdict(record)


def from_fields(fields: Mapping[str, Any]) -> RunRecord:
  """The record of such fields.

  Raises:
    KeyError, TypeError, ValueError: they are none.
  """
  values: dict[str, Any] = {
    k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()
  }
  values["cell"] = Cell(**values["cell"])
  values["differences"] = tuple(
    Difference(**it) for it in values["differences"]
  )
  if values["passes"] is not None:
    values["passes"] = PassTimes(**values["passes"])
  return RunRecord(**values)
