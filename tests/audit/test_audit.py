"""Right pairs pass, and each saboteur fails and is named.

Seeds are fixed. With others, a right pair would fail once in 1000 audits.
Where one saboteur is looked at, only the checks run that may see it: each
check compiles programs of its own.
"""

import dataclasses

import numpy as np
import pytest

import specdec_jax as sd
from specdec_jax.audit import (
  Audit,
  acceptance,
  audit,
  contexts,
  identity,
  law,
  self_draft,
)
from specdec_jax.audit.subject import Subject
from specdec_jax.testing import table_model
from tests.audit import saboteurs
from tests.decode import toys

K = 3
RNG = np.random.default_rng(2)
TABLES = RNG.dirichlet(np.ones(4), (2, 4, 4))
TARGET, DRAFT = map(table_model, TABLES)
DRAFTER = sd.DraftModel(DRAFT, K)
PROMPTS = ((1,), (2, 0, 3))
LEVEL = 1e-4

TINY = toys.tiny()
TINY_DRAFT = toys.perturbed(TINY, 0.3, 1)
TINY_PROMPTS = tuple(map(tuple, toys.prompts([3, 5])))


def names_parts(checks):
  return Audit({}, tuple(checks), 0.0, 0.0).parts


def subject(target, drafter, rule, prompts=PROMPTS, samples=2000, seed=0):
  decoder = sd.SpeculativeDecoder(target, drafter, rule)
  return Subject(
    target, drafter, decoder.rule, prompts, 24, samples, seed, LEVEL
  )


def of_sampling(it):
  """What the law, and what p and q say."""
  judged = contexts.judge(it)
  return [
    law.check(it),
    contexts.check(it, judged),
    acceptance.check(it, judged),
  ]


def of_contexts(it):
  judged = contexts.judge(it)
  return [contexts.check(it, judged), acceptance.check(it, judged)]


def test_a_right_pair_passes():
  told = []
  found = audit(
    TARGET,
    DRAFTER,
    "token",
    PROMPTS,
    max_new_tokens=24,
    num_samples=2000,
    tell=told.append,
  )
  assert found.passed, found.words
  assert len(found.checks) == 6
  assert found.parts == ()
  assert found.subject["rule"] == "TokenRule"
  assert told[-1] == ""
  by_name = {check.name: check.evidence for check in found.checks}
  assert by_name["self-draft"]["acceptance"] == 1
  assert by_name["greedy identity"]["identical"] == len(PROMPTS)
  assert by_name["acceptance"]["judged"] > 50


@pytest.mark.parametrize("seed", [1, 2, 2**32 - 3])
@pytest.mark.parametrize(
  "drafter, rule",
  [
    (DRAFTER, "block"),
    (DRAFTER, "token"),
    (DRAFTER, "gumbel"),
    (sd.PromptLookup(K), "block"),
  ],
)
def test_the_law_of_right_pairs_passes(drafter, rule, seed):
  it = subject(TARGET, drafter, rule, seed=seed)
  checks = of_sampling(it)
  assert all(check.passed for check in checks), checks


@pytest.mark.parametrize("rule", ["block", "gumbel"])
def test_the_target_keeps_its_own_drafts(rule):
  it = subject(TARGET, DRAFTER, rule)
  check = self_draft.check(it)
  assert check.passed, check.says
  assert check.evidence["acceptance"] == 1


@pytest.mark.parametrize(
  "rule",
  [saboteurs.KeepsAllOfBlock(), saboteurs.NoCorrection(), sd.Threshold()],
  ids=lambda rule: type(rule).__name__,
)
def test_a_wrong_rule_is_named(rule):
  checks = of_sampling(subject(TARGET, DRAFTER, rule))
  assert not checks[0].passed
  assert checks[1].passed  # p and q are right
  assert names_parts(checks) == ("rule",)


@pytest.mark.parametrize("rule", [saboteurs.KeepsAll(), sd.Lenient(0.5)])
def test_a_rule_that_keeps_too_much_is_named(rule):
  right, wrong = of_contexts(subject(TARGET, DRAFTER, rule))
  assert right.passed
  assert wrong.faults == ("rule",)
  assert wrong.evidence["acceptance"] > wrong.evidence["expected"]


def test_reused_noise_is_named():
  target, draft = table_model([1 / 3, 2 / 3]), table_model([2 / 3, 1 / 3])
  drafter = sd.DraftModel(draft, 2)
  it = subject(target, drafter, saboteurs.ReusesNoise(), ((0,),), samples=8000)
  checks = of_sampling(it)
  assert not checks[0].passed, checks[0].says
  assert names_parts(checks) == ("rule",)
  assert law.check(dataclasses.replace(it, rule=sd.BlockRule())).passed


def test_a_rule_that_rejects_in_vain_is_named():
  check = self_draft.check(subject(TARGET, DRAFTER, saboteurs.RejectsHalf()))
  assert not check.passed
  assert check.faults == ("rule",)


def test_a_drafter_that_tells_another_law_is_named():
  drafter = saboteurs.TellsOtherTemperature(DRAFT, K)
  wrong, _ = of_contexts(subject(TARGET, drafter, "token"))
  assert wrong.faults == ("drafter",)
  assert wrong.clears == ("target cache",)


def test_a_drafter_that_draws_from_another_law_is_named():
  drafter = saboteurs.DrawsOtherTemperature(DRAFT, K)
  checks = of_sampling(subject(TARGET, drafter, "token"))
  assert [check.passed for check in checks] == [False, True, False]
  assert names_parts(checks) == ("drafter",)


@pytest.mark.parametrize("fault", [saboteurs.OffByOne, saboteurs.Hole])
def test_a_fault_of_the_drafts_cache_is_named(fault):
  drafter = sd.DraftModel(saboteurs.with_network(TINY_DRAFT, fault), K)
  checks = of_contexts(subject(TINY, drafter, "block", TINY_PROMPTS))
  assert not checks[0].passed
  assert names_parts(checks) == ("drafter",)


@pytest.mark.parametrize(
  "fault", [saboteurs.ShiftedAfterRejection, saboteurs.StaleKeys]
)
def test_a_fault_of_the_targets_cache_is_named(fault):
  target = saboteurs.with_network(TINY, fault)
  drafter = sd.DraftModel(TINY_DRAFT, K)
  it = subject(target, drafter, "block", TINY_PROMPTS)
  checks = of_contexts(it)
  assert not checks[0].passed
  if fault is saboteurs.ShiftedAfterRejection:
    checks = [identity.greedy(it), *checks]
    assert checks[0].faults == ("target cache", "rule")
  assert names_parts(checks) == ("target cache",)


def test_near_ties_are_no_faults():
  # Both largest logits are equal but for one in 10,000.
  tie = np.log([0.4, 0.4 * (1 + 1e-4), 0.2 * (1 - 2e-4)])
  target = table_model(np.exp(tie))
  near = dataclasses.replace(target, params=target.params.at[..., 0].add(2e-4))
  it = subject(target, sd.PromptLookup(K), "block", ((0,),))

  class Other(Subject):
    def run(self, drafter, *args, **options):
      pair = near if isinstance(drafter, sd.NoDraft) else target
      own = Subject(**{**vars(self), "target": pair})
      return own.run(drafter, *args, **options)

  check = identity.greedy(Other(**vars(it)))
  assert check.passed
  (found,) = check.evidence["differences"]
  assert found["kind"] == "near tie"
  assert found["gap"] == found["top_gap"] == pytest.approx(1e-4, rel=0.01)
  assert "1 part at a near tie" in check.says


def test_what_was_not_drafted_is_not_judged():
  it = subject(TARGET, sd.PromptLookup(K), "token", ((2,),))
  judged = contexts.judge(dataclasses.replace(it, max_new_tokens=1))
  assert acceptance.check(it, judged).says == "nothing was drafted"


@pytest.mark.parametrize(
  "change, message",
  [
    ({"drafter": sd.NoDraft()}, "expected one that drafts"),
    ({"drafter": DRAFT}, "wrap it"),
    ({"rule": "tokens"}, "rule: expected one of"),
    ({"num_samples": 10}, "num_samples: expected at least 100, got 10"),
    ({"seed": 2**32}, "seed: expected an integer in"),
    ({"alarm": 0}, "alarm: expected a probability"),
    ({"max_new_tokens": 0}, "max_new_tokens: expected at least 1"),
    ({"prompts": "text"}, "no tokenizer"),
  ],
)
def test_bad_input_is_refused(change, message):
  arguments = {"target": TARGET, "drafter": DRAFTER, "prompts": PROMPTS}
  with pytest.raises(ValueError, match=message):
    audit(**arguments | change)


def test_logits_that_are_no_numbers_are_refused():
  wrong = dataclasses.replace(TARGET, params=TARGET.params * np.nan)
  with pytest.raises(ValueError, match="logits are not finite"):
    identity.greedy(subject(wrong, DRAFTER, "token"))
