"""Values compile nothing: prompts, parameters, seeds and limits of a bucket."""

import jax
import pytest

from specdec_jax import (
  DraftModel,
  PromptLookup,
  SamplingParams,
  SpeculativeDecoder,
)
from tests.compilations import compilations
from tests.decode import toys

TARGET = toys.tiny()
DRAFT = toys.perturbed(TARGET, 0.1, seed=1)


def test_the_counter_counts():
  with compilations() as found:
    jax.jit(lambda x: x * 3.25)(1.5)
  assert found


def _params(temperature: float, seed: int, limit: int, **options):
  return SamplingParams(
    temperature=temperature, seed=seed, max_new_tokens=limit, **options
  )


@pytest.mark.parametrize(
  "drafter, other",
  [
    (DraftModel(DRAFT, 4), DraftModel(TARGET, 4, min_confidence=0.3)),
    (PromptLookup(4), PromptLookup(4)),
  ],
  ids=["draft", "lookup"],
)
def test_second_call_of_a_bucket_compiles_nothing(drafter, other):
  first = SpeculativeDecoder(TARGET, drafter)
  first.generate(
    toys.prompts([3, 9, 1, 20], seed=1),
    sampling=[_params(1.0, row, 24) for row in range(4)],
  )
  # Other weights of the same shape, other confidence, three rows for four.
  second = SpeculativeDecoder(TARGET, other)
  params = [
    _params(0.0, 2**32 - 1, 40),
    _params(0.3, 5, 1, top_k=3, top_p=0.5),
    _params(2.0, 9, 33, min_p=0.2),
  ]
  prompts = toys.prompts([17, 2, 5], seed=2)
  with compilations() as found:
    result = second.generate(prompts, sampling=params)
  assert not found
  assert result.timing.compile == 0
  assert list(map(len, result.tokens)) == [40, 1, 33]


def test_streaming_compiles_nothing_that_generating_has_not():
  decoder = SpeculativeDecoder(TARGET, PromptLookup(4))
  decoder.generate([[1, 2]], max_new_tokens=20)
  generation = decoder.start([[5, 6, 7]], max_new_tokens=30)
  with compilations() as found:
    generation.advance(1)
    generation.advance(3)
    generation.advance()
  assert not found


def test_warmup_compiles_all_that_a_generation_needs():
  drafter = DraftModel(DRAFT, 7)
  decoder = SpeculativeDecoder(TARGET, drafter)
  params = SamplingParams(temperature=0.7, frequency_penalty=0.5)
  assert (
    decoder.warmup(30, max_new_tokens=20, sampling=params, batch_size=2) > 0
  )
  result = decoder.generate(
    toys.prompts([28, 20]),
    max_new_tokens=18,
    sampling=SamplingParams(temperature=0.2, presence_penalty=1.0),
  )
  assert result.timing.compile == 0
