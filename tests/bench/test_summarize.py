import dataclasses
import json

import pytest

from specdec_jax.bench.records import Difference
from specdec_jax.bench.suggest import suggest
from specdec_jax.bench.summarize import spread, summarize
from tests.bench.examples import MODEL, PLAIN, record

HEADER = {"memory": "of a test"}


def of(summary, cell):
  return next(it for it in summary.cells if it.cell == cell)


def test_figures_of_a_cell():
  summary = summarize(HEADER, [record(PLAIN), record(MODEL)])
  it = of(summary, MODEL)
  assert it.total.tokens_per_second.median == 24
  assert it.total.whole_tokens_per_second.median == 16
  assert it.total.first_token_seconds.median == 0.3
  assert it.total.tokens_per_pass == 3
  assert it.total.speedup.median == it.total.total_speedup == 2
  assert it.total.step_cost == 1.5
  assert it.total.acceptance_per_position == (1, 1)
  assert it.peak_bytes == 100
  assert summary.memory == "of a test"
  plain = of(summary, PLAIN)
  assert plain.total.speedup is plain.total.step_cost is plain.identity is None
  assert plain.total.acceptance_rate is None


def test_time_and_prediction():
  it = of(summarize(HEADER, [record(PLAIN), record(MODEL)]), MODEL)
  assert it.time.step == 0.125
  assert it.time.overhead == pytest.approx(0.125 / 0.12 - 1)
  found = it.prediction
  assert found.acceptance == 1
  assert found.draft_cost == pytest.approx(0.01 * 12)
  assert found.verify_cost == pytest.approx(0.1 * 12)
  assert found.speedup == pytest.approx(3 / 1.44)
  assert found.error == pytest.approx(3 / 1.44 / 2 - 1)
  assert found.cost_speedup == found.speedup


def test_speedup_is_of_the_same_prompt_and_round():
  # The second prompt is read by a machine that is ten times slower.
  records = [
    record(PLAIN, "a"),
    record(MODEL, "a"),
    record(PLAIN, "b", decode=10.0),
    record(MODEL, "b", decode=5.0),
    record(PLAIN, "a", round=1),
    record(MODEL, "a", round=1, decode=0.25),
  ]
  it = of(summarize(HEADER, records), MODEL)
  # a: the median of 2 and 4; b: 2.
  assert it.total.speedup == spread([3, 2])
  assert it.total.total_speedup == pytest.approx((1 + 10 + 1) / 5.75)


def test_tasks_stand_apart():
  records = [
    record(cell, prompt, task=task, decode=seconds)
    for cell, prompt, task, seconds in (
      (PLAIN, "a", "x", 1.0),
      (MODEL, "a", "x", 0.25),
      (PLAIN, "b", "y", 1.0),
      (MODEL, "b", "y", 0.5),
    )
  ]
  it = of(summarize(HEADER, records), MODEL)
  assert [(f.task, f.total_speedup) for f in it.tasks] == [("x", 4), ("y", 2)]
  assert it.total.prompts == 2


def test_differences_count_each_prompt_once():
  tie, fault = Difference("a", 3, 1e-6, True), Difference("b", 0, 1.0, False)
  records = [
    *(record(PLAIN, prompt, round=n) for prompt in "abc" for n in (0, 1)),
    *(record(MODEL, "a", round=n, differences=(tie,)) for n in (0, 1)),
    *(record(MODEL, "b", round=n, differences=(fault,)) for n in (0, 1)),
    *(record(MODEL, "c", round=n) for n in (0, 1)),
  ]
  summary = summarize(HEADER, records)
  identity = of(summary, MODEL).identity
  assert identity.identical == 1
  assert (identity.near_ties, identity.faults) == (1, 1)
  assert summary.faults == 1


def test_the_curve_is_of_passes_alone():
  (curve,) = summarize(HEADER, [record(PLAIN), record(MODEL)]).curves
  assert [(it.tokens, pytest.approx(it.cost)) for it in curve.passes] == [
    (1, 1),
    (3, 1.2),
  ]


def test_without_passes_nothing_is_predicted():
  records = [record(PLAIN, passes=None), record(MODEL, passes=None)]
  summary = summarize(HEADER, records)
  assert of(summary, MODEL).time is of(summary, MODEL).prediction is None
  assert summary.curves == ()


def test_a_peer_whose_prompt_brought_all_has_no_speed():
  records = [
    record(PLAIN, decode_tokens=0, steps=0),
    record(MODEL, decode_tokens=0, steps=0),
  ]
  assert of(summarize(HEADER, records), MODEL).total.speedup is None


def test_a_summary_is_json():
  summary = summarize(HEADER, [record(PLAIN), record(MODEL)])
  fields = json.loads(json.dumps(summary.to_dict(), allow_nan=False))
  plain, model = fields["cells"]
  assert (plain["name"], model["name"]) == ("plain", "model K=2")
  assert model["total"]["acceptance_per_position"] == [1, 1]
  assert model["identity"]["faults"] == 0
  assert model["time"]["overhead"] == pytest.approx(0.0417, abs=1e-3)


def test_quartiles():
  found = spread([4, 1, 3, 2, 5])
  assert (found.low, found.median, found.high) == (2, 3, 4)
  assert spread([7]).low == 7


def suggested(**seconds):
  """What is suggested where cells of K drafts take so long."""
  cells = {
    name: dataclasses.replace(MODEL, num_draft_tokens=int(name[1:]))
    for name in seconds
  }
  records = [record(PLAIN)]
  records += [record(cells[n], decode=some) for n, some in seconds.items()]
  return suggest(summarize(HEADER, records).cells)


def test_the_fastest_is_suggested():
  found = suggested(K2=0.5, K4=0.3, K8=0.4)
  assert found.best.cell.num_draft_tokens == 4
  assert [it.cell.num_draft_tokens for it in found.others] == [8, 2]


@pytest.mark.parametrize("seconds", [1.5, 0.99])
def test_plain_decoding_is_suggested_where_nothing_gains(seconds):
  found = suggested(K2=seconds, K4=2.0)
  assert found.best.cell == PLAIN
  assert [it.cell.num_draft_tokens for it in found.others] == [2, 4]
