"""Drafts that know some tokens only: exact, and never drafting others."""

import dataclasses

import numpy as np
import pytest

from specdec_jax import DraftModel, SamplingParams, SpeculativeDecoder
from specdec_jax.models.config import ModelConfig
from specdec_jax.models.language_model import LanguageModel
from specdec_jax.models.transformer import TransformerNetwork, random_params
from specdec_jax.sharding import make_mesh
from specdec_jax.testing import goodness_of_fit, table_model, target_law
from tests.decode import toys

FALSE_ALARMS = 1e-6
ROWS, SIZE, K = 20_000, 3, 2
TABLE = np.random.default_rng(1).dirichlet(np.ones(SIZE), (SIZE, SIZE))


def limit(model: LanguageModel, ids: list[int]) -> LanguageModel:
  """The same with a head of these tokens."""
  config = dataclasses.replace(
    model.network.config, tied=False, draft_vocab_size=len(ids)
  )
  table = model.params.get("head.weight", model.params["embed.weight"])
  id_N = np.array(ids, np.int32)
  head = {"head.weight": table[id_N], "draft_vocab_ids": id_N}
  return dataclasses.replace(
    model,
    network=dataclasses.replace(model.network, config=config),
    params=model.params | head,
  )


@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma2"])
def test_greedy_is_plain_decoding(family):
  target = toys.tiny(family, layers=2)
  ids = list(range(0, toys.TINY_VOCAB, 2))
  draft = limit(toys.perturbed(target, 0.1, seed=2), ids)
  prompts = [[7], *toys.prompts([5, 18])]
  result = SpeculativeDecoder(target, DraftModel(draft, 4)).generate(
    prompts, max_new_tokens=24
  )
  for prompt, tokens in zip(prompts, result.tokens, strict=True):
    assert tokens == toys.greedy_text(target, prompt, 24)
  assert result.stats.accepted_tokens > 0
  assert {
    token
    for tokens, drafted in zip(result.tokens, result.drafted, strict=True)
    for token, by_draft in zip(tokens, drafted, strict=True)
    if by_draft
  } <= set(ids)


@pytest.mark.parametrize("rule", ["token", "block", "gumbel"])
def test_the_joint_law_is_the_targets(rule):
  """The law of 4 tokens; a right decoder fails once in a million seeds."""
  config = ModelConfig(
    architecture="LlamaForCausalLM",
    vocab_size=SIZE,
    num_layers=1,
    hidden_size=8,
    mlp_size=8,
    num_heads=1,
    num_kv_heads=1,
    head_dim=8,
    rope_theta=1e4,
    max_length=512,
  )
  network = TransformerNetwork(config, "float32")
  params = random_params(network, seed=3)
  whole = LanguageModel(network, params, None, (), make_mesh(), name="tiny")
  draft = limit(whole, [0, 2])
  decoder = SpeculativeDecoder(
    table_model(TABLE), DraftModel(draft, K), rule=rule
  )
  warm = SamplingParams(temperature=1.0)
  result = decoder.generate([[0, 1]] * ROWS, sampling=warm, max_new_tokens=4)
  law = target_law(toys.table_law(TABLE, warm, (0, 1)), 4)
  assert goodness_of_fit(result.tokens, law) > FALSE_ALARMS
  assert result.stats.accepted_tokens > ROWS / 4
  drafted = np.array(result.drafted)
  assert drafted.any() and not (np.array(result.tokens)[drafted] == 1).any()
