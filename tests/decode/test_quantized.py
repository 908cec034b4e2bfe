"""Speculation with int8 models: exact with respect to the target in int8."""

import dataclasses

import numpy as np
import pytest

from specdec_jax import DraftModel, SamplingParams, SpeculativeDecoder
from specdec_jax.models.transformer import quantized
from tests.decode import toys
from tests.decode.test_draft_vocab import limit


def int8(model):
  network = dataclasses.replace(model.network, quantize="int8")
  params = quantized(network, model.params)
  return dataclasses.replace(model, network=network, params=params)


@pytest.mark.parametrize("family, limited", [("llama", False), ("qwen2", True)])
def test_greedy_is_plain_decoding(family, limited):
  whole = toys.tiny(family, layers=2)
  target, draft = int8(whole), toys.perturbed(whole, 0.1, seed=2)
  if limited:
    draft = limit(draft, list(range(0, toys.TINY_VOCAB, 2)))
  prompts = [[7], *toys.prompts([5, 18])]
  result = SpeculativeDecoder(target, DraftModel(int8(draft), 4)).generate(
    prompts, max_new_tokens=24
  )
  texts = [toys.greedy_text(target, prompt, 24) for prompt in prompts]
  assert result.tokens == texts
  assert result.stats.accepted_tokens > 0
  # It is another model than the one it was made of.
  assert texts != [toys.greedy_text(whole, prompt, 24) for prompt in prompts]


def test_a_draft_equal_to_the_target_is_always_accepted():
  model = int8(toys.tiny("llama", layers=2))
  result = SpeculativeDecoder(model, DraftModel(model, 4)).generate(
    toys.prompts([5, 18, 1]),
    max_new_tokens=60,
    sampling=SamplingParams(temperature=1.0, seed=3),
  )
  assert np.isclose(result.stats.acceptance_rate, 1)
