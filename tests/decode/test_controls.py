"""Penalties, biases and bans are exact at every drafted position."""

import dataclasses

import numpy as np
import pytest

from specdec_jax import (
  DraftModel,
  NoDraft,
  PromptLookup,
  SamplingParams,
  SpeculativeDecoder,
)
from specdec_jax.sampling import LOG_ZERO
from specdec_jax.testing import goodness_of_fit, table_model, target_law
from tests.decode import toys

FALSE_ALARMS = 1e-6
TARGET = toys.tiny()
DRAFT = DraftModel(toys.perturbed(TARGET, 0.1, seed=1), 4)
PROMPTS = [[7], *toys.prompts([5, 18]), [3, 4, 5, 6] * 5]
TOKENS = 24
EOS = 13
CONTROLS = [
  SamplingParams(repetition_penalty=1.3, frequency_penalty=0.2),
  SamplingParams(presence_penalty=1.5, logit_bias={3: 4.0, 9: -50.0}),
  SamplingParams(allowed_token_ids=[*range(5, 25)], frequency_penalty=0.7),
  SamplingParams(min_new_tokens=9, repetition_penalty=0.8),
]


def _generate(drafter, rule, temperature, target=TARGET):
  params = [
    dataclasses.replace(p, temperature=temperature, seed=row)
    for row, p in enumerate(CONTROLS)
  ]
  decoder = SpeculativeDecoder(target, drafter, rule)
  return decoder.generate(PROMPTS, sampling=params, max_new_tokens=TOKENS)


def _by_definition(prompt, params, eos_ids=()) -> list[int]:
  text: list[int] = []
  while len(text) < TOKENS and not set(text) & set(eos_ids):
    logits = TARGET.logits([*prompt, *text])[-1]
    logits = toys.controlled(logits, params, prompt, text, eos_ids)
    text.append(int(np.argmax(logits)))
  return text


@pytest.mark.parametrize("drafter", [DRAFT, PromptLookup(4), NoDraft()])
@pytest.mark.parametrize("eos_ids", [(), (EOS,)])
def test_greedy_is_the_definition(drafter, eos_ids):
  target = dataclasses.replace(TARGET, eos_ids=eos_ids)
  result = _generate(drafter, "block", 0.0, target)
  for prompt, params, tokens in zip(
    PROMPTS, CONTROLS, result.tokens, strict=True
  ):
    assert tokens == _by_definition(prompt, params, eos_ids)


@pytest.mark.parametrize("drafter", [DRAFT, PromptLookup(4)])
def test_gumbel_tokens_are_those_of_plain_sampling(drafter):
  plain = _generate(NoDraft(), "gumbel", 0.9)
  assert _generate(drafter, "gumbel", 0.9).tokens == plain.tokens


@pytest.mark.parametrize("rule", ["token", "block", "gumbel"])
def test_a_model_accepts_itself(rule):
  """The draft's law takes in its own drafts as the target's does."""
  stats = _generate(DraftModel(TARGET, 4), rule, 0.9).stats
  assert stats.accepted_tokens == stats.draft_tokens > 0


class TestJointLaw:
  """As in test_joint_law: a right decoder fails once in a million seeds."""

  rows, K, size = 20_000, 2, 3
  prompts = ([0, 1], [2], [1, 1, 0], [0])
  params = (
    SamplingParams(1.0, repetition_penalty=1.8, frequency_penalty=0.4),
    SamplingParams(0.7, presence_penalty=-0.9, logit_bias={1: 0.8}),
    SamplingParams(1.2, allowed_token_ids=[0, 2], frequency_penalty=1.0),
    SamplingParams(1.0, min_new_tokens=2, top_p=0.9),
  )

  def table(self, seed):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(self.size), (self.size, self.size))

  def law(self, kind: int):
    next_law = toys.table_law(
      self.table(1), self.params[kind], tuple(self.prompts[kind]), (2,)
    )
    # Rows end at their EOS: what would follow is not drawn.
    law: dict[tuple[int, ...], float] = {}
    for text, share in target_law(next_law, 4).items():
      end = text.index(2) + 1 if 2 in text else 4
      law[text[:end]] = law.get(text[:end], 0) + share
    return law

  @pytest.mark.parametrize("rule", ["token", "block", "gumbel"])
  def test_law(self, rule):
    kinds = [row % len(self.params) for row in range(self.rows)]
    target = table_model(self.table(1), eos_ids=(2,))
    drafter = DraftModel(table_model(self.table(2), eos_ids=(2,)), self.K)
    result = SpeculativeDecoder(target, drafter, rule).generate(
      [self.prompts[kind] for kind in kinds],
      sampling=[
        dataclasses.replace(self.params[kind], seed=row)
        for row, kind in enumerate(kinds)
      ],
      max_new_tokens=4,
    )
    assert result.stats.accepted_tokens > self.rows / 10
    for kind in range(len(self.params)):
      samples = result.tokens[kind :: len(self.params)]
      assert goodness_of_fit(samples, self.law(kind)) > FALSE_ALARMS


def test_a_ban_holds_at_any_temperature():
  logits = np.zeros((1, 80, 5))
  target = toys.script_model(np.where(np.arange(5) == 3, LOG_ZERO, logits))
  params = SamplingParams(temperature=1e30, allowed_token_ids=[1, 3])
  result = SpeculativeDecoder(target).generate(
    [[0]], sampling=params, max_new_tokens=30
  )
  assert set(result.tokens[0]) == {1}
