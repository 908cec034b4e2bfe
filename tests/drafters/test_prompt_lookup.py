import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax import PromptLookup
from specdec_jax.types import View

SLOTS = 24


def _propose(drafter: PromptLookup, texts, active=None) -> list[list[int]]:
  tokens_BS = np.random.default_rng(0).integers(0, 3, (len(texts), SLOTS))
  for row, text in enumerate(texts):  # what is behind the text is undefined
    tokens_BS[row, : len(text)] = text
  if active is None:
    active = [True] * len(texts)

  @jax.jit
  def propose(tokens_BS, length_B, active_B):
    view = View(tokens_BS, length_B, length_B + 99, active_B, None)
    proposal, _ = drafter.propose((), (), view)
    return proposal.tokens_BK, proposal.length_B

  tokens_BK, length_B = propose(
    jnp.asarray(tokens_BS), jnp.array(list(map(len, texts))), jnp.array(active)
  )
  return [
    tokens_BK[row, : int(length_B[row])].tolist() for row in range(len(texts))
  ]


def _reference(text: list[int], count: int, max_ngram: int) -> list[int]:
  """The longest n-gram that the text ends with; its latest earlier place."""
  for size in range(min(max_ngram, len(text) - 1), 0, -1):
    for end in range(len(text) - 1, size - 1, -1):
      if text[end - size : end] == text[-size:]:
        return text[end : end + count]
  return []


@pytest.mark.parametrize("count, max_ngram", [(1, 1), (4, 3), (8, 2), (3, 5)])
def test_agrees_with_a_plain_search(count, max_ngram):
  rng = np.random.default_rng(count)
  texts = [
    rng.integers(0, 3, rng.integers(1, SLOTS + 1)).tolist() for _ in range(300)
  ]
  drafter = PromptLookup(count, max_ngram=max_ngram)
  for text, found in zip(texts, _propose(drafter, texts), strict=True):
    assert found == _reference(text, count, max_ngram), text


def test_worked_examples():
  drafter = PromptLookup(3, max_ngram=2)
  texts = [
    [1, 2, 7, 8, 9, 1, 2],  # what followed (1, 2)
    [5, 1, 6, 2, 1, 8, 5, 1],  # (5, 1) at the start beats a later 1
    [1, 4, 1, 5, 1],  # the latest of two matches, and no further than the text
    [1, 2, 3],  # no match
    [4],  # nothing to match
    [6] * SLOTS,  # a full row
  ]
  assert _propose(drafter, texts) == [
    [7, 8, 9],
    [6, 2, 1],
    [5, 1],
    [],
    [],
    [6],
  ]


def test_finished_rows_draft_nothing():
  drafts = _propose(PromptLookup(2), [[1, 1, 1, 1]] * 2, [True, False])
  assert drafts == [[1], []]


@pytest.mark.parametrize("name", ["num_draft_tokens", "max_ngram"])
def test_counts_below_one_are_refused(name):
  with pytest.raises(ValueError, match=f"{name}: .* at least 1, got 0"):
    PromptLookup(**{name: 0})
