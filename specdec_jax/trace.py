"""What each step of a row was made of: its drafts, their p and q, the verdict.

Noted on the device, in the state, while the loop runs as ever.
"""

import dataclasses
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from specdec_jax.sampling import LOG_ZERO
from specdec_jax.types import Array, Proposal


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Trace:
  """Notes of blocks, each at the length at which it began.

  Attributes:
    draft_BSK: the tokens drafted.
    log_p_BSK: log p of each, under the target's law.
    log_q_BSK: log q of each, under the law it was drawn from; nan where it was
      picked.
    overlap_BSK: Σ min(p, q) at each place; nan where it was picked.
    drafts_BS: how many drafts count.
    kept_BS: how many of them stay.
    new_BS: how many tokens came; 0 where no block began.
    last_log_p_BS: log p of the token after the kept drafts.
  """

  draft_BSK: Array
  log_p_BSK: Array
  log_q_BSK: Array
  overlap_BSK: Array
  drafts_BS: Array
  kept_BS: Array
  new_BS: Array
  last_log_p_BS: Array

  @classmethod
  def zero(cls, batch: int, slots: int, num_draft_tokens: int) -> "Trace":
    def zero(*shape: int, dtype: DTypeLike = jnp.float32) -> Array:
      return jnp.zeros((batch, slots, *shape), dtype)

    wide = num_draft_tokens
    return cls(
      draft_BSK=zero(wide, dtype=jnp.int32),
      log_p_BSK=zero(wide),
      log_q_BSK=zero(wide),
      overlap_BSK=zero(wide),
      drafts_BS=zero(dtype=jnp.int32),
      kept_BS=zero(dtype=jnp.int32),
      new_BS=zero(dtype=jnp.int32),
      last_log_p_BS=zero(),
    )

  def note(
    self,
    length_B: Array,
    proposal: Proposal,
    log_p_BTV: Array,
    last_B: Array,
    counts_B: tuple[Array, Array, Array],
  ) -> "Trace":
    """With one more block.

    Args:
      length_B: lengths at its start.
      proposal: what was drafted.
      log_p_BTV: the target's laws, T = K + 1.
      last_B: the token after the kept drafts.
      counts_B: drafts that count, those kept, and tokens that came.
    """
    log_p_BKV, log_q_BKV = log_p_BTV[:, :-1], proposal.log_q_BKV
    log_p_BK = _of(log_p_BKV, proposal.tokens_BK)
    log_q_BK = overlap_BK = jnp.full_like(log_p_BK, jnp.nan)
    if log_q_BKV is not None:
      log_q_BK = _of(log_q_BKV, proposal.tokens_BK)
      overlap_BK = jnp.exp(jnp.minimum(log_p_BKV, log_q_BKV)).sum(axis=-1)
    drafts_B, kept_B, new_B = counts_B
    last_BT = jnp.broadcast_to(last_B[:, None], log_p_BTV.shape[:2])
    last_log_p_BT = _of(log_p_BTV, last_BT)
    row_B = jnp.arange(len(length_B))
    new = Trace(
      proposal.tokens_BK,
      log_p_BK,
      log_q_BK,
      overlap_BK,
      drafts_B,
      kept_B,
      new_B,
      jnp.take_along_axis(last_log_p_BT, kept_B[:, None], axis=1)[:, 0],
    )
    # A row that has ended notes an empty block behind its text.
    return jax.tree.map(
      lambda all_BS, one_B: all_BS.at[row_B, length_B].set(one_B, mode="drop"),
      self,
      new,
    )


def _of(log_law_BTV: Array, token_BT: Array) -> Array:
  """The log-probability of each token, `[B, T]`."""
  index_BT1 = token_BT[..., None]
  return jnp.take_along_axis(log_law_BTV, index_BT1, axis=-1)[..., 0]


@dataclasses.dataclass(frozen=True)
class Block:
  """One step of a row: what was drafted, and what the target made of it.

  In a batch that is all greedy, p is the target's softmax after bias and
  penalties; the law itself is one-hot there.

  Attributes:
    drafts: the drafts that were submitted. Those behind the first that was
      rejected were not judged by the rules that judge one after another.
    target_log_probs: log p of each, under the target's law at its place, after
      the drafts before it; -inf for what the law excludes.
    draft_log_probs: log q of each, under the law that it was drawn from; None
      where they were picked, or drawn by noise that the target shares.
    overlaps: Σ min(p, q) at each place, 1 - TV of the two laws: how probable it
      is that a draft drawn there passes token verification. None as above.
    kept: how many drafts stay.
    token: the target's own token behind them; None where the row ended with a
      kept draft, or for logits that were not finite.
    token_log_prob: log p of it.
  """

  drafts: tuple[int, ...]
  target_log_probs: tuple[float, ...]
  draft_log_probs: tuple[float, ...] | None
  overlaps: tuple[float, ...] | None
  kept: int
  token: int | None
  token_log_prob: float | None

  @property
  def new_tokens(self) -> int:
    """How many tokens it added to the row."""
    return self.kept + (self.token is not None)


def blocks(
  trace: Trace, row: int, tokens: Sequence[int], begin: int
) -> list[Block]:
  """The blocks of a row.

  Args:
    trace: on the host.
    row: which.
    tokens: what was generated.
    begin: the length of the prompt.
  """
  found: list[Block] = []
  seen = 0
  while seen < len(tokens):
    place = row, begin + seen
    new = tokens[seen : seen + trace.new_BS[place].item()]
    found.append(_block(trace, place, new))
    seen += len(new)
  return found


def _block(trace: Trace, place: tuple[int, int], new: Sequence[int]) -> Block:
  """The block that began at this place and brought these tokens."""
  drafts = trace.drafts_BS[place].item()
  kept = trace.kept_BS[place].item()

  def floats(array_BSK: Array) -> tuple[float, ...]:
    return tuple(map(_exact, array_BSK[place][:drafts].tolist()))

  log_q = floats(trace.log_q_BSK)
  drawn = not any(map(math.isnan, log_q))
  own = len(new) > kept
  return Block(
    drafts=tuple(trace.draft_BSK[place][:drafts].tolist()),
    target_log_probs=floats(trace.log_p_BSK),
    draft_log_probs=log_q if drawn else None,
    overlaps=floats(trace.overlap_BSK) if drawn else None,
    kept=kept,
    token=new[kept] if own else None,
    token_log_prob=_exact(trace.last_log_p_BS[place].item()) if own else None,
  )


def _exact(log_prob: float) -> float:
  """-inf for what a law excludes."""
  return -math.inf if log_prob <= LOG_ZERO / 2 else log_prob
