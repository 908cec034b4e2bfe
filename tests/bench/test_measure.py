"""Runs of a tiny pair."""

import dataclasses

import numpy as np
import pytest

from specdec_jax.acceptance import GreedyRule
from specdec_jax.bench import cells, identity, measure
from specdec_jax.bench.measure import Meter, Prompt
from specdec_jax.bench.ways import Limits, Ours
from specdec_jax.bench.workload import Item
from specdec_jax.types import Verdict
from tests.bench.examples import MODEL, PLAIN, pair

NEW_TOKENS = 20
PROMPTS = [
  Prompt(Item(f"p {i}", f"{i}", "ab"[i % 2], ""), (1, 2, i)) for i in range(4)
]


@pytest.fixture(scope="module")
def models():
  return pair()


def grid(**values):
  lists = {
    "drafters": ["model"],
    "rules": ["block"],
    "num_draft_tokens": [2],
    "temperatures": [0.0],
    "batch_sizes": [1],
  }
  return cells.grid(**(lists | values))


def measured(models, some, number=0, rounds=1, passes=False):
  units = measure.units(some, [prompt.item for prompt in PROMPTS])
  meter = Meter(
    models, PROMPTS, limits=Limits(NEW_TOKENS), rounds=rounds, seed=0
  )
  return meter.measure(units[number], passes)


def test_units_are_settings_times_batches():
  some = grid(temperatures=[0.0, 1.0], batch_sizes=[1, 2])
  units = measure.units(some, [prompt.item for prompt in PROMPTS])
  assert [unit.number for unit in units] == list(range(12))
  assert units[0].cells == (PLAIN, MODEL)
  assert [unit.places for unit in units[:6]] == [
    *((0,), (2,), (1,), (3,)),
    *((0, 2), (1, 3)),
  ]


def test_each_round_begins_with_another_cell():
  turns = [measure._turned("abc", turn) for turn in range(3)]
  assert [order[0] for order in turns] == ["a", "b", "c"]
  # Positions add up to the same: a steady drift cancels.
  assert {sum(turn.index(c) for turn in turns) for c in "abc"} == {3}


def test_greedy_runs_are_compared_and_timed(models):
  plain, model, *more = measured(models, grid(), rounds=2, passes=True)
  assert len(more) == 2
  assert plain.row_passes == plain.steps == plain.new_tokens == NEW_TOKENS
  assert model.row_passes < NEW_TOKENS
  assert model.new_tokens == model.row_passes + sum(model.accepted)
  assert (model.compared, model.differences) == (1, ())
  assert (plain.compared, plain.drafted) == (0, ())
  assert model.prompts == ("0",) and model.task == "a"
  for it in (plain, model):
    assert it.decode > 0 and it.prefill < it.first_token
    assert it.first_token < it.prefill + it.decode
    assert it.slots == 64
    assert it.passes.slots == 64
    assert it.passes.verify > 0 and it.passes.accept > 0
  assert plain.passes.draft == 0 < model.passes.draft
  # What was compiled for the first round is there for the second.
  assert more[1].compile == 0


def test_a_batch_is_one_run(models):
  records = measured(models, grid(batch_sizes=[2]), passes=True)
  plain, model = records
  assert plain.prompts == ("0", "2")
  assert plain.new_tokens == 2 * NEW_TOKENS
  assert plain.steps == NEW_TOKENS
  assert plain.row_passes == 2 * NEW_TOKENS
  assert model.steps <= model.row_passes < 2 * model.steps + 1
  assert model.compared == 2 and not model.differences


def test_sampled_rounds_have_other_seeds(models):
  some = grid(temperatures=[1.0], rules=["block", "gumbel"])
  way = Ours(models, some[0], Limits(NEW_TOKENS))
  first = way.run([PROMPTS[0].tokens], [0]).tokens
  assert first != way.run([PROMPTS[0].tokens], [4]).tokens
  assert first == way.run([PROMPTS[0].tokens], [0]).tokens
  records = measured(models, some, passes=True)
  assert {record.compared for record in records} == {0}
  assert all(record.passes.accept > 0 for record in records)


def test_lookup_needs_no_draft(models):
  alone = dataclasses.replace(models, draft=None)
  records = measured(alone, grid(drafters=["lookup"]), passes=True)
  assert records[1].cell.drafter == "lookup"
  assert records[1].passes.draft > 0
  with pytest.raises(ValueError, match="expected a draft model, got none"):
    alone.drafter(MODEL)


@dataclasses.dataclass(frozen=True)
class Gullible(GreedyRule):
  """Keeps every draft."""

  def __call__(self, logits_BTV, proposal, noise):
    verdict = super().__call__(logits_BTV, proposal, noise)
    return Verdict(proposal.length_B, verdict.next_B)


def test_a_wrong_rule_is_a_fault(models, monkeypatch):
  monkeypatch.setattr("specdec_jax.generation.GreedyRule", Gullible)
  _, model = measured(models, grid())
  (found,) = model.differences
  assert found.near_tie is False  # as JSON has it
  assert found.gap > 0.01
  assert found.prompt == "0"


def test_ties_are_told_from_faults(models):
  context = list(PROMPTS[0].tokens)
  logits_V = models.target.logits(context, count=1)[-1]
  best, next_best, *_, worst = np.argsort(-logits_V)
  found = identity.tie(models.target, context, (best, next_best))
  assert found.gap == pytest.approx(logits_V.max() - sorted(logits_V)[-2])
  assert not found.near
  # A tie of the two best is none of the worst.
  params = models.target.params.at[..., next_best].set(
    models.target.params[..., best]
  )
  even = dataclasses.replace(models.target, params=params)
  assert identity.tie(even, context, (best, next_best)) == (0, True)
  assert identity.tie(even, context, (best, worst)) == (0, False)


def test_passes_are_timed_where_most_caches_are_alike(models):
  long = Prompt(Item("", "long", "a", ""), (1,) * 80)
  prompts = [long, *PROMPTS]
  units = measure.units(grid(), [prompt.item for prompt in prompts])
  timed = measure.with_passes(models, units, prompts, NEW_TOKENS)
  assert timed == {1, 2, 3, 4}
