"""bfloat16: as many tokens a pass as the pair's agreement promises."""

import pytest

import specdec_jax as sd

pytestmark = pytest.mark.real


# Teacher-forced argmax agreement of this pair on these prompts gives these
# figures; a lower one with the right text means a fault in the draft's cache.
@pytest.mark.parametrize(("draft_tokens", "tau"), [(4, 4.34), (8, 6.76)])
def test_tokens_per_pass(fast_pair, humaneval, draft_tokens, tau):
  target, draft = fast_pair
  decoder = sd.SpeculativeDecoder(target, sd.DraftModel(draft, draft_tokens))
  rows = [
    decoder.generate(humaneval[i], max_new_tokens=96).stats
    for i in range(0, 160, 16)
  ]
  found = sd.Stats.total(rows).tokens_per_target_pass
  assert found == pytest.approx(tau, rel=0.08)
