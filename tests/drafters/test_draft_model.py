import warnings

import numpy as np
import pytest

from specdec_jax import DraftModel, SamplingParams, SpeculativeDecoder
from specdec_jax.testing import table_model

# Tokens 0, 1, 2 of the draft: sure, fairly sure, unsure of what follows.
DRAFT = np.array(
  [
    [0.05, 0.9, 0.05, 0],
    [0.1, 0.1, 0.6, 0.2],
    [0.4, 0.3, 0.2, 0.1],
    [1, 0, 0, 0],
  ]
)
TARGET = np.roll(np.eye(4), 1, axis=1)  # 0 1 2 3 0 ..


def _drafted(
  min_confidence: float, params: SamplingParams | None = None
) -> list[int]:
  """Drafts at each place of the block, in one block after token 0."""
  drafter = DraftModel(table_model(DRAFT), 3, min_confidence=min_confidence)
  decoder = SpeculativeDecoder(table_model(TARGET), drafter)
  generation = decoder.start(
    [[0]], max_new_tokens=20, sampling=params or SamplingParams()
  )
  generation.advance(1)
  return list(generation.result().row_stats[0].drafted_per_position)


@pytest.mark.parametrize(
  "min_confidence, drafted",
  [(0.0, [1, 1, 1]), (0.5, [1, 1, 0]), (0.7, [1, 0, 0]), (0.95, [0, 0, 0])],
)
def test_a_row_stops_before_a_position_it_is_unsure_of(min_confidence, drafted):
  # Its greedy drafts are 1, 2, 0, after 0, 1 and 2.
  assert _drafted(min_confidence) == drafted


def test_confidence_is_of_the_plain_softmax():
  # At temperature 9 no token has a probability of 0.5 any more.
  params = SamplingParams(temperature=9.0, top_k=1)
  assert _drafted(0.5, params) == [1, 1, 0]


def test_a_shorter_context_drafts_nothing_past_it():
  drafter = DraftModel(table_model(TARGET, max_length=12), 3)
  decoder = SpeculativeDecoder(table_model(TARGET), drafter)
  with pytest.warns(UserWarning, match="context of 12 tokens") as caught:
    result = decoder.generate([[0], [1, 2, 3]], max_new_tokens=20)
  assert len(caught) == 1
  for row, prompt in enumerate(([0], [1, 2, 3])):
    length = len(prompt)
    expected = [(prompt[-1] + i + 1) % 4 for i in range(20)]
    assert result.tokens[row] == expected
    # Place i of the row is written by the draft only below its context.
    places = length + np.flatnonzero(result.drafted[row])
    assert places.max() < 12
    assert result.row_stats[row].draft_tokens == len(places)


def test_no_warning_where_the_context_is_long_enough():
  drafter = DraftModel(table_model(TARGET, max_length=30), 3)
  decoder = SpeculativeDecoder(table_model(TARGET), drafter)
  with warnings.catch_warnings():
    warnings.simplefilter("error")
    decoder.generate([[0]], max_new_tokens=29)


def test_another_vocabulary_is_refused():
  drafter = DraftModel(table_model(np.eye(5)), 3)
  with pytest.raises(ValueError, match="5 and 4 tokens"):
    SpeculativeDecoder(table_model(TARGET), drafter)


def test_values_out_of_range():
  model = table_model(DRAFT)
  with pytest.raises(ValueError, match=r"at least 1 .* got 0; .* NoDraft"):
    DraftModel(model, 0)
  for value in (-0.1, 1.1, float("nan")):
    with pytest.raises(ValueError, match=f"min_confidence: .* got {value}"):
      DraftModel(model, 3, min_confidence=value)
