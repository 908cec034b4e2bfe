import dataclasses

import pytest

from specdec_jax import sharding
from specdec_jax.plan import abstract, chips, fit, planner
from tests.plan.conftest import CONFIGS

GIB = 2**30


def request_of(**options):
  return planner.Request(
    **{
      "target": abstract.read_config(str(CONFIGS / "qwen3-8b")),
      "draft": abstract.read_config(str(CONFIGS / "qwen3-0.6b")),
      "topology": None,
      **options,
    }
  )


def memory_on(name, request=None, mesh=None):
  topology = chips.parse(name)
  request = request or request_of()
  pair = request.pair(
    sharding.abstract_mesh(*(mesh or (1, topology.num_devices)))
  )
  return fit.memory_of(pair, topology), pair


def test_memory_by_hand():
  """Weights and caches of Qwen3-8B + 0.6B, counted with pencil and paper."""
  memory, _ = memory_on("v5e:2x4")
  layer = 4096 * (2 * 4096 + 2 * 1024 + 3 * 12288)
  weights = (36 * layer + 2 * 151936 * 4096) * 2 / 8
  assert memory.kinds["target weights"] == pytest.approx(weights, rel=0.01)
  small = 1024 * (2 * 2048 + 2 * 1024 + 3 * 3072)
  weights = (28 * small + 151936 * 1024) * 2 / 8
  assert memory.kinds["draft weights"] == pytest.approx(weights, rel=0.01)
  # 8 rows of 4096 slots; key and value of 8 heads of 128, a head on each chip.
  cache = 8 * 4096 * 2 * 8 * 128 * 2 / 8
  assert memory.kinds["target cache"] == 36 * cache
  assert memory.kinds["draft cache"] == 28 * cache
  assert memory.kinds["other state"] < 2**20
  assert memory.fits


def test_rows_split_the_caches_and_not_the_weights():
  whole, _ = memory_on("v5e:1x1")
  split, _ = memory_on("v5e:2x4", mesh=(8, 1))
  assert split.kinds["target weights"] == whole.kinds["target weights"]
  assert split.kinds["target cache"] * 8 == whole.kinds["target cache"]


def test_what_does_not_fit_says_what_would():
  request = request_of()
  memory, pair = memory_on("v5e:1x1", request)
  assert not memory.fits
  assert memory.excess == memory.total - memory.capacity > 0
  assert memory.capacity == pytest.approx(0.95 * 15.75 * GIB, rel=1e-6)
  found = planner._remedies(request, memory, pair, chips.parse("v5e:1x1"))
  topology, mesh = found.larger
  assert (topology.name, mesh) == ("v5e:2x2", (1, 4))
  assert memory_on("v5e:2x2")[0].fits
  assert found.context_length == 0  # the weights alone are too large
  halved = memory.kinds["target weights"] + memory.kinds["draft weights"]
  # Half of it, but for the scales of rows, norms and the like.
  assert found.int8_total == pytest.approx(memory.total - halved / 2, rel=1e-3)
  assert found.int8_fits == (found.int8_total <= memory.capacity)
  smaller = dataclasses.replace(request, quantize="int8")
  memory, pair = memory_on("v5e:1x1", smaller)
  assert memory.total == found.int8_total
  again = planner._remedies(smaller, memory, pair, chips.parse("v5e:1x1"))
  assert again.int8_total is None and not again.int8_fits


def test_a_shorter_context_fits():
  request = request_of(context_length=100_000)
  memory, pair = memory_on("v5e:2x2", request)
  assert not memory.fits
  found = planner._remedies(request, memory, pair, chips.parse("v5e:2x2"))
  assert 0 < found.context_length < 100_000
  shorter = dataclasses.replace(request, context_length=found.context_length)
  assert memory_on("v5e:2x2", shorter)[0].fits
  longer = dataclasses.replace(request, context_length=2 * found.context_length)
  assert not memory_on("v5e:2x2", longer)[0].fits


def test_more_chips_than_heads_split_the_rows():
  """Caches of 8 heads: on 16 chips rows are split as well, or none fits."""
  request = request_of(context_length=60_000, batch_size=16)
  memory, pair = memory_on("v5e:2x4", request)
  assert not memory.fits
  found = planner._remedies(request, memory, pair, chips.parse("v5e:2x4"))
  topology, mesh = found.larger
  assert memory_on(topology.name, request, mesh)[0].fits


def test_auto_takes_the_smallest_that_fits(monkeypatch):
  tried = []

  def plan(request, topology, tell):
    tried.append(topology.name)
    memory, pair = memory_on(topology.name, request)
    return planner.Plan(
      request, topology, (1, 1), pair, memory, None, None, (), None, 0
    )

  monkeypatch.setattr(planner, "_plan", plan)
  assert planner.make(request_of()).topology.name == tried[0] == "v6e:1x1"
  smaller = request_of(target=request_of().draft)
  assert planner.make(smaller).topology.name == "v5e:1x1"
  split = request_of(mesh=(2, 4))
  assert planner.make(split).topology.num_devices == 8
  with pytest.raises(ValueError, match="slices known on that mesh"):
    planner.make(request_of(mesh=(1, 3)))


def test_auto_splits_the_rows_where_the_caches_need_it(monkeypatch):
  def plan(request, topology, tell):
    memory, pair = memory_on(topology.name, request, request.mesh)
    return planner.Plan(
      request, topology, request.mesh, pair, memory, None, None, (), None, 0
    )

  monkeypatch.setattr(planner, "_plan", plan)
  found = planner.make(request_of(batch_size=128, context_length=32000))
  assert found.memory.fits and found.mesh[0] > 1


def test_one_vocabulary_for_both():
  target, draft = request_of().target, request_of().draft
  request = request_of(
    target=dataclasses.replace(target, vocab_size=152064, known_rows=152064)
  )
  _, pair = memory_on("v5e:1x1", request)
  assert pair.target.network.vocab_size == draft.vocab_size == 151936
  assert pair.target.params["head.weight"].shape == (151936, 4096)
