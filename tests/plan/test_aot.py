"""The pair compiled for chips that are not here."""

import functools

import pytest

from specdec_jax import sharding
from specdec_jax.plan import abstract, chips, passes, planner
from specdec_jax.plan.roofline import ACCEPTANCES, DRAFT_LENGTHS
from tests.plan.conftest import CONFIGS

# What was compiled for chips that are not here cannot be read from the cache.
pytestmark = [
  pytest.mark.aot,
  pytest.mark.filterwarnings("ignore:Error reading persistent compilation"),
]


@functools.cache
def made():
  """Qwen3-8B with Qwen3-0.6B on eight v5e."""
  request = planner.Request(
    abstract.read_config(str(CONFIGS / "qwen3-8b")),
    abstract.read_config(str(CONFIGS / "qwen3-0.6b")),
    chips.parse("v5e:2x4"),
  )
  return planner.make(request)


@pytest.fixture
def plan():
  pytest.importorskip("libtpu")
  return made()


def the(plan, name, tokens):
  (found,) = (
    it for it in plan.passes if (it.name, it.tokens) == (name, tokens)
  )
  return found


def test_it_fits_and_is_donated(plan):
  assert plan.memory.fits
  caches = plan.memory.kinds["target cache"] + plan.memory.kinds["draft cache"]
  assert plan.program.donated >= caches
  assert plan.memory.kinds["temporaries"] < caches / 4


def test_two_all_reduces_a_layer(plan):
  """And one more, of the embedding's rows."""
  for name, tokens, layers in (
    ("plain", 1, 36),
    ("verify", 5, 36),
    ("verify", 11, 36),
    ("draft", 1, 28),
  ):
    cost = the(plan, name, tokens).cost
    assert {(it.kind, it.axis) for it in cost.collectives} == {
      ("all-reduce", "model")
    }
    assert sum(it.count for it in cost.collectives) == 2 * layers + 1


def test_figures_by_hand(plan):
  """FLOPs and the whole generation's all-reduces within 10 % of arithmetic."""
  matrices = 36 * 4096 * (2 * 4096 + 2 * 1024 + 3 * 12288) + 151936 * 4096
  attention = 36 * 2 * 32 * 128 * 4096
  for name, tokens in (("plain", 1), ("verify", 5), ("verify", 11)):
    it = the(plan, name, tokens)
    flops = 2 * 8 * tokens * (matrices + attention) / 8
    assert it.cost.flops == pytest.approx(flops, rel=0.1)
    cache = 8 * 4096 * 2 * 8 * 128 * 2 * 36 / 8
    assert it.least == pytest.approx(matrices * 2 / 8 + cache, rel=0.01)
    # XLA keeps a layer's cache on the chip while it is updated, and writes all
    # of it back: up to one cache more than is needed.
    assert it.least <= it.cost.traffic < 1.1 * (it.least + cache)
  reduces = sum(
    it.count
    for it in plan.program.collectives
    if it.kind == "all-reduce" and it.size >= 8 * 1024 * 2
  )
  # The target's pass and two of the draft: its first is apart.
  assert reduces == pytest.approx((2 * 36 + 1) + 2 * (2 * 28 + 1), rel=0.1)


def test_predictions_obey(plan):
  weights = plan.memory.kinds["target weights"]
  plain = the(plan, "plain", 1)
  assert plain.time.total >= weights * 0.9 / 819e9
  assert plain.time.bound == "HBM"
  prediction = plan.prediction
  assert all(prediction.speedup(0, length) < 1 for length in DRAFT_LENGTHS)
  best = [prediction.best_length(acceptance) for acceptance in ACCEPTANCES]
  assert best == sorted(best)
  assert best[0] < best[-1]


@pytest.mark.parametrize(
  "topology, data, model", [("v6e:4x4", 2, 8), ("v5p:4x4x4", 8, 8)]
)
def test_a_mesh_need_not_have_the_shape_of_the_slice(
  monkeypatch, topology, data, model
):
  pytest.importorskip("libtpu")
  devices = chips.parse(topology).describe()
  monkeypatch.setattr("jax.devices", lambda: devices)
  mesh = sharding.make_mesh(data, model)
  assert sharding.sizes(mesh) == {"data": data, "model": model}
  assert set(mesh.devices.flat) == set(devices)


def test_a_generation_that_does_not_fit_is_refused_by_the_compiler():
  """In words that the plan understands."""
  pytest.importorskip("libtpu")
  import jax
  import jax.numpy as jnp

  mesh = sharding.make_mesh(1, 1, chips.parse("v5e:1x1").describe())
  where = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
  large = jax.ShapeDtypeStruct((2**30, 10), jnp.bfloat16, sharding=where)
  with pytest.raises(passes.DoesNotFit) as caught:
    passes._compile(lambda x, y: (x * 2, y), (large, large), where)
  assert caught.value.needed > 20 * 2**30
