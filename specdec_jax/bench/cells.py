"""What is measured: ways of decoding, each with its settings."""

import dataclasses
import itertools
from collections.abc import Sequence

OURS = "specdec_jax"
TRANSFORMERS = "transformers"
PLAIN = "none"
GREEDY = "greedy"


@dataclasses.dataclass(frozen=True, order=True)
class Cell:
  """One way of decoding.

  Attributes:
    temperature: of the sampling; 0 takes the most probable token.
    batch_size: prompts that run side by side.
    engine: `OURS`, or the name of another implementation, a peer.
    drafter: "model", "lookup", or `PLAIN` for plain decoding.
    rule: of acceptance; `GREEDY` at temperature 0, where all rules are one.
    num_draft_tokens: K; 0 for plain decoding.
  """

  temperature: float
  batch_size: int
  engine: str
  drafter: str
  rule: str
  num_draft_tokens: int

  @property
  def is_plain(self) -> bool:
    """Whether it is a baseline: it drafts nothing."""
    return self.drafter == PLAIN

  @property
  def plain(self) -> "Cell":
    """The baseline that it is measured against, of its own engine.

    Of the sampling rules it has block, whose draw takes the least time.
    """
    rule = "block" if self.temperature else GREEDY
    return dataclasses.replace(
      self, drafter=PLAIN, rule=rule, num_draft_tokens=0
    )

  @property
  def name(self) -> str:
    """What people call it: "model K=4 block", "plain"."""
    parts = [] if self.engine == OURS else [self.engine]
    if self.is_plain:
      return " ".join([*parts, "plain"])
    parts += [self.drafter, f"K={self.num_draft_tokens}"]
    if self.rule != GREEDY:
      parts.append(self.rule)
    return " ".join(parts)

  @property
  def full_name(self) -> str:
    """The same with its setting."""
    return (
      f"{self.name}, temperature {self.temperature:g}, batch {self.batch_size}"
    )


def grid(
  *,
  drafters: Sequence[str],
  rules: Sequence[str],
  num_draft_tokens: Sequence[int],
  temperatures: Sequence[float],
  batch_sizes: Sequence[int],
) -> list[Cell]:
  """Every combination, and the plain baseline of each setting before them.

  At temperature 0 all rules are one, so there they make one cell.
  """
  cells: dict[Cell, None] = {}
  for temperature, batch_size in itertools.product(temperatures, batch_sizes):
    plain = Cell(temperature, batch_size, OURS, PLAIN, "", 0).plain
    cells[plain] = None
    named = rules if temperature else (GREEDY,)
    for drafter, rule, count in itertools.product(
      drafters, named, num_draft_tokens
    ):
      if drafter != PLAIN:
        cell = dataclasses.replace(
          plain, drafter=drafter, rule=rule, num_draft_tokens=count
        )
        cells[cell] = None
  return list(cells)


def with_peer(cells: Sequence[Cell], engine: str) -> list[Cell]:
  """Adds what another engine can do of them: no batches, and its own rule.

  transformers' speculative sampling is the rule token.
  """
  theirs = (
    dataclasses.replace(
      cell, engine=engine, rule="token" if cell.temperature else GREEDY
    )
    for cell in cells
    if cell.batch_size == 1
  )
  peers = (cell.plain if cell.is_plain else cell for cell in theirs)
  return [*cells, *dict.fromkeys(peers)]
