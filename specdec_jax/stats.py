"""What the loop counts, and the figures derived from it."""

import dataclasses
from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np

from specdec_jax.types import Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Counts:
  """Counters of the running loop. Finished rows add to none of them.

  Attributes:
    tokens_B: tokens emitted.
    passes_B: passes of the target.
    drafted_BK: drafts submitted at each place of the block.
    accepted_BK: drafts kept at each place.
  """

  tokens_B: Array
  passes_B: Array
  drafted_BK: Array
  accepted_BK: Array

  @classmethod
  def zero(cls, batch: int, num_draft_tokens: int) -> "Counts":
    def zero_B():
      return jnp.zeros(batch, jnp.int32)

    def zero_BK():
      return jnp.zeros((batch, num_draft_tokens), jnp.int32)

    return cls(zero_B(), zero_B(), zero_BK(), zero_BK())

  def add(
    self, active_B: Array, tokens_B: Array, drafts_B: Array, kept_B: Array
  ) -> "Counts":
    """Adds one block: `tokens_B` emitted, `drafts_B` judged, `kept_B` kept."""
    place_1K = jnp.arange(self.drafted_BK.shape[1])[None]
    return Counts(
      tokens_B=self.tokens_B + tokens_B,
      passes_B=self.passes_B + active_B,
      drafted_BK=self.drafted_BK + (place_1K < drafts_B[:, None]),
      accepted_BK=self.accepted_BK + (place_1K < kept_B[:, None]),
    )


@dataclasses.dataclass(frozen=True)
class Stats:
  """Statistics of a generation: of one row, or of all rows in sum.

  Attributes:
    new_tokens: tokens generated, an EOS among them.
    target_passes: blocks, each one pass of the target.
    drafted_per_position: drafts submitted at each place of the block.
    accepted_per_position: drafts kept at each place of the block.
  """

  new_tokens: int
  target_passes: int
  drafted_per_position: tuple[int, ...]
  accepted_per_position: tuple[int, ...]

  @classmethod
  def of_row(cls, counts: Counts, row: int) -> "Stats":
    """Those of one row of counters on the host."""
    return cls(
      counts.tokens_B[row].item(),
      counts.passes_B[row].item(),
      tuple(counts.drafted_BK[row].tolist()),
      tuple(counts.accepted_BK[row].tolist()),
    )

  @classmethod
  def total(cls, rows: Iterable["Stats"]) -> "Stats":
    """The sum over rows of one generation."""
    rows = list(rows)

    def by_place(name: str) -> tuple[int, ...]:
      values = np.array([getattr(row, name) for row in rows], int)
      return tuple(int(n) for n in values.sum(axis=0))

    return cls(
      sum(row.new_tokens for row in rows),
      sum(row.target_passes for row in rows),
      by_place("drafted_per_position"),
      by_place("accepted_per_position"),
    )

  @property
  def draft_tokens(self) -> int:
    """Drafts that the target judged; those past a row's end do not count."""
    return sum(self.drafted_per_position)

  @property
  def accepted_tokens(self) -> int:
    """Drafts that were kept."""
    return sum(self.accepted_per_position)

  @property
  def acceptance_rate(self) -> float:
    """accepted_tokens / draft_tokens; nan without drafts."""
    if not self.draft_tokens:
      return float("nan")
    return self.accepted_tokens / self.draft_tokens

  @property
  def tokens_per_target_pass(self) -> float:
    """The block efficiency tau, the target's own token included."""
    if not self.target_passes:
      return float("nan")
    return self.new_tokens / self.target_passes

  def to_dict(self) -> dict[str, object]:
    """Every figure by name, for JSON; nan becomes None."""
    names = (
      "new_tokens",
      "target_passes",
      "draft_tokens",
      "accepted_tokens",
      "tokens_per_target_pass",
      "acceptance_rate",
      "drafted_per_position",
      "accepted_per_position",
    )
    values = {name: getattr(self, name) for name in names}
    return {k: None if v != v else v for k, v in values.items()}
