"""A text may begin with what another has left in the caches."""

import pytest

from specdec_jax import DraftModel, SamplingParams, SpeculativeDecoder
from specdec_jax.generation import Generation
from specdec_jax.prompts import Request
from tests.decode import toys

TARGET = toys.tiny()
DECODER = SpeculativeDecoder(
  TARGET, DraftModel(toys.perturbed(TARGET, 0.1, seed=1), 3)
)
(TEXT,) = toys.prompts([57], seed=4)
NEW = 4  # 57 + 4 + 3 fill the 64 slots


def _start(tokens, new=NEW, prefix=None) -> Generation:
  request = Request(tuple(tokens), SamplingParams(), new)
  return Generation(
    TARGET, DECODER.drafter, DECODER.rule, [request], rows=1, prefix=prefix
  )


@pytest.mark.parametrize("kept", [1, 7, 16, 31, 34, 40, 43, 50])
def test_wherever_it_begins_the_caches_are_filled(kept):
  """Also where the last chunk would reach past the slots."""
  first = _start(TEXT[: kept + 3], new=1)
  # Left where the prompt ends: nothing but the prompt is kept.
  prefix = first.prefix()
  assert prefix.tokens == tuple(TEXT[:kept])
  generation = _start(TEXT, prefix=prefix)
  assert generation.prefilled_tokens == len(TEXT) - kept
  generation.advance()
  assert generation._state.tokens_BS.shape[1] == 64
  fresh = _start(TEXT)
  fresh.advance()
  (ours,), (theirs,) = (g.result().completions for g in (generation, fresh))
  assert ours.tokens == theirs.tokens == toys.greedy_text(TARGET, TEXT, NEW)
  assert ours.stats == theirs.stats


def test_what_differs_is_not_kept():
  other = [*TEXT[:20], (TEXT[20] + 1) % toys.TINY_VOCAB, *TEXT[21:40]]
  generation = _start(TEXT, prefix=_start(other, new=1).prefix())
  assert generation.prefilled_tokens == len(TEXT) - 20
  generation.advance()
  (ours,) = generation.result().completions
  assert ours.tokens == toys.greedy_text(TARGET, TEXT, NEW)
