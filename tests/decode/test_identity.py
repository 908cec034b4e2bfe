"""Token for token what plain decoding gives, in float32."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax import (
  DraftModel,
  NoDraft,
  PromptLookup,
  SamplingParams,
  SpeculativeDecoder,
)
from specdec_jax.noise import Noise
from specdec_jax.testing import table_model
from tests.decode import toys

TOKENS = 24
# Unequal lengths, one of a single token, one with matches for the lookup.
PROMPTS = [[7], *toys.prompts([5, 18]), [3, 4, 5, 6] * 5]

TARGET = toys.tiny()
# Errs now and then: some blocks are kept whole, some in part, some not at all.
DRAFT = toys.perturbed(TARGET, 0.1, seed=1)


def _generate(target, drafter, rule, params, prompts=PROMPTS):
  decoder = SpeculativeDecoder(target, drafter, rule)
  params = params or SamplingParams()
  return decoder.generate(prompts, sampling=params, max_new_tokens=TOKENS)


def _greedy_texts(target):
  return [toys.greedy_text(target, prompt, TOKENS) for prompt in PROMPTS]


@pytest.mark.parametrize("family", toys.FAMILIES)
def test_greedy_is_plain_decoding_for_every_family(family):
  target = toys.tiny(family, layers=2)
  draft = toys.perturbed(target, 0.1, seed=2)
  result = _generate(target, DraftModel(draft, 4), "block", SamplingParams())
  assert result.tokens == _greedy_texts(target)
  assert 0.1 < result.stats.acceptance_rate < 0.95


@pytest.mark.parametrize(
  "family, temperature",
  [*((family, 0.0) for family in toys.FAMILIES), ("gemma3", 1.0)],
)
def test_every_family_accepts_itself(family, temperature):
  """Before a window is full, past it, and in the block in between."""
  target = toys.tiny(family, layers=2)
  params = SamplingParams(temperature=temperature)
  result = _generate(target, DraftModel(target, 4), "block", params)
  assert result.stats.draft_tokens > 3 * TOKENS
  assert result.stats.accepted_tokens == result.stats.draft_tokens


DRAFTERS = {
  "draft-1": DraftModel(DRAFT, 1),
  "draft-4": DraftModel(DRAFT, 4),
  "other-architecture": DraftModel(toys.tiny("qwen3", seed=5), 4),
  "lookup-1": PromptLookup(1),
  "lookup-4": PromptLookup(4),
  "none": NoDraft(),
}


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_greedy_is_plain_decoding_for_every_drafter(drafter):
  result = _generate(TARGET, DRAFTERS[drafter], "block", SamplingParams())
  assert result.tokens == _greedy_texts(TARGET)


@pytest.mark.parametrize("drafter", ["none", "draft-1"])
def test_more_rows_in_a_pass_change_nothing(drafter):
  """Where a platform is slow at few rows, committed ones are fed again."""
  table = np.random.default_rng(0).dirichlet(np.ones(9), (9, 9))
  model = table_model(table)
  wide = dataclasses.replace(
    model, network=dataclasses.replace(model.network, min_rows=4)
  )
  draft = table_model(table.mean(axis=0))
  drafters = {"none": NoDraft(), "draft-1": DraftModel(draft, 1)}
  prompts = [[5], [3, 1], [2, 0, 1, 8, 4]]  # shorter than a pass, and longer
  result = _generate(wide, drafters[drafter], "block", None, prompts)
  for prompt, tokens in zip(prompts, result.tokens, strict=True):
    text = [0, *prompt]
    for _ in range(TOKENS):
      text.append(int(np.argmax(table[text[-2], text[-1]])))
    assert tokens == text[-TOKENS:]


# A sampled row in the batch, so that the rule itself judges the greedy ones.
MIXED = [
  SamplingParams(),
  SamplingParams(),
  SamplingParams(temperature=1.0, seed=3),
  SamplingParams(),
]
GREEDY = [0, 1, 3]


@pytest.mark.parametrize(
  "rule, drafter",
  [
    ("token", "draft-4"),
    ("block", "draft-4"),
    ("gumbel", "draft-4"),
    ("threshold", "draft-4"),
    ("typical", "draft-4"),
    ("lenient", "draft-4"),
    ("block", "lookup-4"),
  ],
)
def test_greedy_rows_among_sampled_ones_are_plain_decoding(rule, drafter):
  result = _generate(TARGET, DRAFTERS[drafter], rule, MIXED)
  expected = _greedy_texts(TARGET)
  for row in GREEDY:
    assert result.tokens[row] == expected[row]
  if drafter == "draft-4":
    rate = [result.row_stats[row].acceptance_rate for row in GREEDY]
    assert 0.1 < np.mean(rate) < 0.95


WARM = [
  SamplingParams(temperature=1.0, seed=5),
  SamplingParams(temperature=1.0, seed=2**32 - 1, top_k=7),
  SamplingParams(temperature=0.7, seed=5, top_p=0.8),
  SamplingParams(temperature=1.3, seed=0, top_k=20, top_p=0.9),
]


@pytest.fixture(scope="module")
def plain_sample():
  return _generate(TARGET, NoDraft(), "gumbel", WARM).tokens


@pytest.mark.parametrize(
  "drafter",
  [DraftModel(DRAFT, 2), DraftModel(DRAFT, 6), PromptLookup(4)],
  ids=["draft-2", "draft-6", "lookup-4"],
)
def test_gumbel_is_plain_sampling_with_the_same_seed(drafter, plain_sample):
  result = _generate(TARGET, drafter, "gumbel", WARM)
  assert result.tokens == plain_sample
  if isinstance(drafter, DraftModel):
    assert 0.1 < result.stats.acceptance_rate < 0.95


def test_plain_gumbel_samples_with_the_noise_of_each_position(plain_sample):
  """Plain decoding itself, by definition: argmax of log p + noise."""
  for row, (prompt, params) in enumerate(zip(PROMPTS, WARM, strict=True)):
    noise = Noise(jnp.array([params.seed], jnp.uint32), jnp.zeros(1, int), True)
    positions = len(prompt) + np.arange(TOKENS)
    noise_TV = noise.gumbel(jnp.asarray(positions)[None], toys.TINY_VOCAB)[0]
    logits = TARGET.logits(prompt + plain_sample[row])
    for i, token in enumerate(plain_sample[row]):
      law = toys.filtered(
        _softmax(logits[len(prompt) + i - 1].astype(float)), params
      )
      with np.errstate(divide="ignore"):
        assert token == np.argmax(np.log(law) + np.asarray(noise_TV[i]))


def _softmax(logits_V):
  weight_V = np.exp(logits_V - logits_V.max())
  return weight_V / weight_V.sum()


def test_seeds_change_the_text_and_repeat_it():
  first = _generate(TARGET, DRAFTERS["draft-4"], "block", WARM)
  again = _generate(TARGET, DRAFTERS["draft-4"], "block", WARM)
  assert first.tokens == again.tokens
  one = SamplingParams(temperature=1.0, seed=7)
  rows = _generate(TARGET, DRAFTERS["draft-4"], "block", one, [[7]] * 4)
  assert len({tuple(tokens) for tokens in rows.tokens}) == 4
  # Row i takes seed + i.
  other = SamplingParams(temperature=1.0, seed=9)
  shifted = _generate(TARGET, DRAFTERS["draft-4"], "block", other, [[7]] * 4)
  assert shifted.tokens[:2] == rows.tokens[2:]


@pytest.mark.parametrize(
  "rule, temperature",
  [("block", 0.0), ("token", 1.0), ("block", 1.0), ("gumbel", 1.0)],
)
def test_target_as_its_own_draft_is_always_right(rule, temperature):
  """Ragged rows, 200 steps and more."""
  params = [
    SamplingParams(temperature=temperature, seed=row, top_p=top_p)
    for row, top_p in enumerate((1.0, 0.9, 1.0, 0.8))
  ]
  decoder = SpeculativeDecoder(TARGET, DraftModel(TARGET, 4), rule)
  result = decoder.generate(PROMPTS, sampling=params, max_new_tokens=300)
  assert result.stats.target_passes >= 200
  for stats in result.row_stats:
    assert stats.accepted_tokens == stats.draft_tokens
    assert stats.tokens_per_target_pass == 5
