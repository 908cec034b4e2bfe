"""Many prompts through few rows: each is as if it were alone."""

import dataclasses

import numpy as np
import pytest

from specdec_jax import (
  DraftModel,
  SamplingParams,
  SpeculativeDecoder,
  generation,
)
from tests.decode import toys

ROWS, COUNT = 8, 200
DRAFTER = DraftModel(toys.perturbed(toys.tiny(), 0.1, seed=1), 4)
DECODER = SpeculativeDecoder(toys.tiny(), DRAFTER, "block")
PROMPTS = toys.prompts([1 + (7 * row) % 31 for row in range(COUNT)], seed=8)
PARAMS = [
  SamplingParams(
    temperature=0.5 + row % 8 / 8,
    top_p=0.9,
    repetition_penalty=1.1 if row % 2 else 1.0,
    seed=row,
    max_new_tokens=(30, 4, 19, 25)[row % 4],
    logprobs=True,
  )
  for row in range(COUNT)
]


def assert_same(ours, alone):
  assert ours.tokens == alone.tokens
  assert ours.drafted == alone.drafted
  assert ours.finish_reason == alone.finish_reason
  assert ours.stats == alone.stats
  np.testing.assert_allclose(ours.log_probs, alone.log_probs, atol=1e-5)


def test_every_prompt_is_as_if_alone():
  result = DECODER.generate(PROMPTS, sampling=PARAMS, batch_size=ROWS)
  for row in range(0, COUNT, 9):  # of every kind
    (alone,) = DECODER.generate(
      [PROMPTS[row]], sampling=[PARAMS[row]]
    ).completions
    assert_same(result.completions[row], alone)


@pytest.mark.parametrize("blocks", [1, 3, None])
def test_no_row_is_idle_while_prompts_wait(blocks):
  few = 24
  run = DECODER.start(PROMPTS[:few], sampling=PARAMS[:few], batch_size=ROWS)
  ended: list[int] = []
  while not run.done:
    if run._waiting:
      assert run._state.active_B.sum() == ROWS
    run.advance(blocks)
    ended += [i for i in run.completions if i not in ended]
    if blocks is not None:
      for index, text in enumerate(run.result().tokens):
        assert not (index in run._waiting and text)
  assert sorted(ended) == list(range(few))
  assert ended != sorted(ended) or blocks is None


def test_the_loop_comes_back_when_a_row_has_ended(monkeypatch):
  """In all passes that are run while prompts wait, every row takes part."""
  run = DECODER.start(PROMPTS[:24], sampling=PARAMS[:24], batch_size=ROWS)
  call, waited = run._run.call, []

  def watched(weights, state, *values):
    before_B = np.array(state.counts.passes_B)
    state = call(weights, state, *values)
    if run._waiting:
      passes_B = np.array(state.counts.passes_B) - before_B
      assert len(set(passes_B)) == 1
      waited.append(passes_B[0])
    return state

  monkeypatch.setattr(run, "_run", run._run._replace(call=watched))
  run.advance()
  assert run.done and len(waited) > 5


class TestSamples:
  params = SamplingParams(temperature=1.0, seed=3, max_new_tokens=12)

  def prefills(self, monkeypatch) -> list[int]:
    rows: list[int] = []
    original = generation.Generation._prefilled

    def counted(self, requests, bucket):
      rows.append(len(requests))
      return original(self, requests, bucket)

    monkeypatch.setattr(generation.Generation, "_prefilled", counted)
    return rows

  def test_samples_share_a_prefill_and_are_as_if_alone(self, monkeypatch):
    rows = self.prefills(monkeypatch)
    result = DECODER.generate(PROMPTS[:2], sampling=self.params, num_samples=3)
    assert rows == [2]
    assert len({tuple(tokens) for tokens in result.tokens[:3]}) == 3
    for number, ours in enumerate(result.tokens):
      alone = DECODER.generate(
        [PROMPTS[number // 3]],
        sampling=dataclasses.replace(self.params, seed=3 + number),
      )
      assert ours == alone.tokens[0]

  def test_samples_through_fewer_rows(self, monkeypatch):
    whole = DECODER.generate(PROMPTS[:2], sampling=self.params, num_samples=3)
    rows = self.prefills(monkeypatch)
    few = DECODER.generate(
      PROMPTS[:2], sampling=self.params, num_samples=3, batch_size=2
    )
    assert few.tokens == whole.tokens
    assert rows == [1, 1]

  def test_each_prompt_with_its_own_parameters(self):
    params = [self.params, dataclasses.replace(self.params, seed=50)]
    result = DECODER.generate(PROMPTS[:2], sampling=params, num_samples=2)
    for number, seed in enumerate((3, 4, 50, 51)):
      alone = DECODER.generate(
        [PROMPTS[number // 2]],
        sampling=dataclasses.replace(self.params, seed=seed),
      )
      assert result.tokens[number] == alone.tokens[0]


@pytest.mark.parametrize("name", ["num_samples", "batch_size"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True])
def test_numbers_that_make_no_sense(name, value):
  with pytest.raises(ValueError, match=f"{name}: expected an integer"):
    DECODER.start(PROMPTS[:1], **{name: value})
