"""Drafts by copying what followed the same words earlier in the text.

Prompt lookup decoding (A. Saxena, 2023), on the device: no model, no cache.
"""

import dataclasses

import jax.numpy as jnp
from jax import lax

from specdec_jax.arrays import window
from specdec_jax.drafters.modelless import Modelless
from specdec_jax.sampling import is_integer
from specdec_jax.types import Array, Proposal, PyTree, View


@dataclasses.dataclass(frozen=True)
class PromptLookup(Modelless):
  """Proposes the continuation of the latest, longest earlier match.

  Attributes:
    num_draft_tokens: K, the most tokens copied in a block.
    max_ngram: how many of the newest tokens are compared at most; the longest
      match wins, then the latest. Rows without a match draft nothing.

  Raises:
    ValueError: a value is below 1.
  """

  num_draft_tokens: int = 8
  max_ngram: int = 3

  def __post_init__(self) -> None:
    for name in ("num_draft_tokens", "max_ngram"):
      value = getattr(self, name)
      if not is_integer(value) or value < 1:
        raise ValueError(
          f"{name}: expected an integer of at least 1, got {value}"
        )

  def propose(
    self, params: PyTree, draft: PyTree, view: View
  ) -> tuple[Proposal, PyTree]:
    del params
    end_B, matched_B = self._find(view.tokens_BS, view.length_B)
    # The window clamps at the end of the row; the copy ends with the text.
    padded_BS = jnp.pad(view.tokens_BS, ((0, 0), (0, self.num_draft_tokens)))
    tokens_BK = window(padded_BS, end_B + 1, self.num_draft_tokens)
    count_B = jnp.minimum(view.length_B - 1 - end_B, self.num_draft_tokens)
    count_B = jnp.where(matched_B & view.active_B, count_B, 0)
    return Proposal(tokens_BK, count_B, None), draft

  def _find(self, tokens_BS: Array, length_B: Array) -> tuple[Array, Array]:
    """Where the best match ends, and whether there is one."""
    slots = tokens_BS.shape[1]
    place_1S = jnp.arange(slots)[None]
    newest_B = length_B - 1

    def compare(back: Array, found: tuple[Array, Array]) -> tuple[Array, Array]:
      run_BS, whole_BS = found
      token_B1 = window(tokens_BS, jnp.maximum(newest_B - back, 0), 1)
      there_BS = jnp.roll(tokens_BS, back, axis=1)
      # A place shorter than the n-gram would wrap around to the row's end.
      exists_BS = (place_1S >= back) & (newest_B[:, None] >= back)
      whole_BS &= (there_BS == token_B1) & exists_BS
      return run_BS + whole_BS, whole_BS

    # How many of the newest tokens match at each place, and whether all do.
    found = jnp.zeros_like(tokens_BS), jnp.ones(tokens_BS.shape, bool)
    run_BS, _ = lax.fori_loop(0, self.max_ngram, compare, found)
    run_BS = jnp.where(place_1S < newest_B[:, None], run_BS, 0)
    longest_B1 = run_BS.max(axis=1, keepdims=True)
    latest_BS = jnp.where(run_BS == longest_B1, place_1S, -1)
    return jnp.argmax(latest_BS, axis=1), longest_B1[:, 0] > 0
