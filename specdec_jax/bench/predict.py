"""What a block brings, from the costs of its parts.

Leviathan et al., "Fast inference from transformers via speculative decoding",
arXiv 2211.17192, theorem 3.8: with drafts that each stay with probability a,
and a draft that takes c times as long as the target,

  speedup = (1 - a^(K+1)) / ((1 - a) (c K + 1)).

Here the pass that judges K + 1 tokens takes v(K + 1) plain steps, not always 1,
and a block in which a row drafted fewer than K counts as what it is.
"""

import math
from collections.abc import Sequence


def acceptance(drafted: Sequence[int], accepted: Sequence[int]) -> float:
  """The probability a that a draft stays, those before it kept.

  The maximum-likelihood estimate where all places have the same: drafts kept
  over drafts tested. A draft is tested where those before it have stayed.

  Args:
    drafted: drafts submitted at each place of the block.
    accepted: drafts kept there.

  Returns:
    a in [0, 1]; 0 without drafts.
  """
  reached = [math.inf, *accepted]
  tested = sum(map(min, drafted, reached))
  return sum(accepted) / tested if tested else 0.0


def tokens_per_pass(rate: float, drafted: Sequence[int], passes: int) -> float:
  """tau: the target's own token, and the drafts that stay before it.

  1 + sum over places i of a^i times the share of blocks that drafted so far;
  (1 - a^(K+1)) / (1 - a) where all did, equation (1).

  Args:
    rate: a.
    drafted: drafts submitted at each place of the block.
    passes: blocks.
  """
  shares = (count / passes for count in drafted)
  return 1 + sum(share * rate**i for i, share in enumerate(shares, 1))


def speedup(
  tokens: float, draft_cost: float, verify_cost: float, length: int
) -> float:
  """Of a block over plain steps.

  Args:
    tokens: tau.
    draft_cost: c, a drafted token's time in plain steps.
    verify_cost: v(K + 1), the judging pass in plain steps.
    length: K.
  """
  return tokens / (draft_cost * length + verify_cost)
