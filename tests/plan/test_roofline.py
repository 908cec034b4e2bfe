import itertools

import pytest

from specdec_jax.plan import chips
from specdec_jax.plan.hlo import Collective
from specdec_jax.plan.roofline import (
  ACCEPTANCES,
  DRAFT_LENGTHS,
  Cost,
  PassTime,
  Prediction,
  interpolate,
  pass_time,
  tokens_per_block,
  transfer_seconds,
)

V5E = chips.parse("v5e:2x4")


def all_reduce(size, count=1, devices=8):
  return Collective("all-reduce", "model", devices, size, 0, count)


def test_a_pass_takes_what_binds_it():
  by_memory = pass_time(Cost(819e6, 1.97e9, ()), V5E)
  assert by_memory == pytest.approx((1e-3, 1e-5, 0))
  assert (by_memory.total, by_memory.bound) == (by_memory.memory, "HBM")
  by_compute = pass_time(Cost(819e6, 1.97e12, ()), V5E)
  assert by_compute.total == pytest.approx(1e-2)
  assert by_compute.bound == "compute"
  linked = pass_time(Cost(819e6, 0, (all_reduce(8, count=1000),)), V5E)
  assert linked.bound == "interconnect"
  assert linked.total == pytest.approx(linked.memory + linked.transfers)


def test_transfers_in_a_ring():
  # 80 MB over 8 chips: 2 * 7/8 of it at 100 GB/s.
  assert transfer_seconds(all_reduce(80e6), V5E) == pytest.approx(1.4e-3)
  # Next to nothing: two rounds of four hops.
  assert transfer_seconds(all_reduce(8), V5E) == pytest.approx(8e-6)
  assert transfer_seconds(all_reduce(8, count=73), V5E) == pytest.approx(
    73 * 8e-6
  )
  gather = Collective("all-gather", "model", 8, 80e6, 0)
  assert transfer_seconds(gather, V5E) == pytest.approx(0.7e-3)
  assert transfer_seconds(all_reduce(8, devices=1), V5E) == 0


def test_tokens_of_a_block():
  """Leviathan et al., equation (1)."""
  assert tokens_per_block(0, 4) == 1
  assert tokens_per_block(1, 4) == 5
  for a, k in itertools.product((0.3, 0.8, 0.95), DRAFT_LENGTHS):
    assert tokens_per_block(a, k) == pytest.approx((1 - a ** (k + 1)) / (1 - a))


def test_between_sizes_each_part_is_a_line():
  known = {1: PassTime(4, 0, 0), 11: PassTime(4, 10, 2)}
  assert interpolate(known, 6) == (4, 5, 1)
  # Compute overtakes at T = 5: the sum of the ends would be above.
  assert interpolate(known, 5).total == pytest.approx(4.8)
  assert interpolate(known, 1) == known[1]
  assert interpolate(known, 99) == known[11]


def prediction(draft=0.2, compute=0.05):
  target = {
    tokens: PassTime(1.0, compute * tokens, 0.1) for tokens in (1, 5, 11)
  }
  return Prediction(8, draft, target)


def test_speedup_by_hand():
  """K = 4: 3.3616 tokens at 0.8 for four drafts and a pass."""
  it = prediction()
  assert it.block(4) == pytest.approx(4 * 0.2 + 1.1)
  assert it.speedup(0.8, 4) == pytest.approx(3.3616 * 1.1 / 1.9)
  assert it.tokens_per_second(0.8, 4) == pytest.approx(8 * 3.3616 / 1.9)
  assert it.tokens_per_second(0.8, 0) == pytest.approx(8 / 1.1)
  # It verifies K + 1 tokens: where they are computed slowly, that is seen.
  assert prediction(compute=0.5).block(4) == pytest.approx(4 * 0.2 + 2.6)


@pytest.mark.parametrize("draft", [0.01, 0.1, 0.3, 0.9])
@pytest.mark.parametrize("compute", [0.0, 0.05, 0.3])
def test_laws_of_the_table(draft, compute):
  it = prediction(draft, compute)
  assert all(it.speedup(0, length) < 1 for length in DRAFT_LENGTHS)
  best = [it.best_length(acceptance) for acceptance in ACCEPTANCES]
  assert best == sorted(best)
  assert best[0] == 1
  for length in DRAFT_LENGTHS:
    column = [it.speedup(acceptance, length) for acceptance in ACCEPTANCES]
    assert column == sorted(column)


def test_a_cheap_draft_drafts_far():
  assert prediction(draft=0.01, compute=0).best_length(0.95) == 10
  assert prediction(draft=0.9).best_length(0.95) < 10
