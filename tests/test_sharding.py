"""Meshes, rules, and where arrays of a network lie."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from specdec_jax import sharding
from specdec_jax.models.transformer import random_params
from tests import tiny


@pytest.mark.parametrize("shape", [(1, 1), (2, 1), (1, 2), (2, 2), (1, 4)])
def test_meshes_have_auto_axes(shape):
  mesh = sharding.make_mesh(*shape)
  assert sharding.sizes(mesh) == dict(
    zip(("data", "model"), shape, strict=True)
  )
  assert set(mesh.axis_types) == {AxisType.Auto}


def test_meshes_can_take_chosen_devices():
  devices = jax.devices()[1:3]
  mesh = sharding.make_mesh(model=2, devices=devices)
  assert list(mesh.devices.flat) == devices


@pytest.mark.parametrize("shape", [(3, 3), (9, 1), (0, 1), (1, -1)])
def test_meshes_that_cannot_be_are_refused(shape):
  with pytest.raises(ValueError, match="mesh"):
    sharding.make_mesh(*shape)


def test_what_does_not_divide_is_replicated():
  mesh = sharding.make_mesh(2, 2)
  spec = sharding.param_spec(("vocab", "embed"), (32, 16), mesh)
  assert spec == PartitionSpec(("model0",), None)
  spec = sharding.param_spec(("vocab", "embed"), (33, 16), mesh)
  assert spec == PartitionSpec(None, None)
  assert _cache_spec(mesh, 4, 2) == PartitionSpec(
    ("data",), ("model0",), None, None
  )
  assert _cache_spec(mesh, 3, 1) == PartitionSpec(None, None, None, None)
  assert sharding.batch_spec(4, mesh) == PartitionSpec(("data",))


def _cache_spec(mesh, batch, kv_heads):
  shape = jax.ShapeDtypeStruct((batch, kv_heads, 16, 8), jnp.float32)
  return sharding.of_rows(mesh, shape).spec


def test_what_divides_over_some_devices_is_divided_over_those():
  mesh = sharding.abstract_mesh(1, 16)
  # 8 key-value heads on 16 devices: each lies on two of them.
  assert _shard(mesh, "kv_heads", 8) == 1
  assert _shard(mesh, "heads", 64) == 4
  # 14 heads on 16 devices, 2 key-value heads: over two of the ways.
  assert _shard(mesh, "heads", 14) == 7
  assert _shard(mesh, "kv_heads", 2) == 1
  # No prime in common.
  assert _shard(mesh, "kv_heads", 3) == 3
  assert _shard(sharding.abstract_mesh(1, 6), "kv_heads", 3) == 1


def _shard(mesh, axis, units):
  """Units of a dimension that each device has."""
  where = NamedSharding(mesh, sharding.param_spec((axis,), (units,), mesh))
  return where.shard_shape((units,))[0]


def test_an_axis_without_a_rule_is_refused():
  with pytest.raises(ValueError, match="no sharding rule for axis 'time'"):
    sharding.param_spec(("time",), (4,), sharding.make_mesh())


def test_every_parameter_has_a_place():
  mesh = sharding.make_mesh(1, 4)
  for name in tiny.CONFIGS:
    for info in tiny.network(name).param_infos().values():
      assert len(info.axes) == len(info.shape) == len(info.units)
      info.spec(mesh)


def _place(mesh, network, batch, slots):
  infos = network.param_infos()
  params = {
    path: jax.device_put(value, NamedSharding(mesh, infos[path].spec(mesh)))
    for path, value in random_params(network, 0).items()
  }
  cache = network.init_cache(batch, slots)
  return params, jax.device_put(cache, sharding.of_rows(mesh, cache))


@pytest.mark.parametrize("shape", [(2, 1), (1, 2), (2, 2), (1, 4)])
def test_sharded_rows_are_unsharded_rows(shape):
  network, batch, slots = tiny.network("qwen2"), 4, 16
  tokens = np.random.default_rng(0).integers(0, 32, (batch, 5))
  start = np.array([0, 3, 7, 1])

  @functools.partial(jax.jit, donate_argnames="cache")
  def run(params, tokens_BT, start_B, cache):
    hidden, _, cache = network.forward(params, tokens_BT, start_B, cache)
    return network.head(params, hidden), cache

  results = []
  for mesh in (sharding.make_mesh(), sharding.make_mesh(*shape)):
    params, cache = _place(mesh, network, batch, slots)
    rows = NamedSharding(mesh, sharding.batch_spec(batch, mesh))
    inputs = jax.device_put((tokens, start), rows)
    wanted = cache[0][0].sharding
    logits, cache = run(params, *inputs, cache)
    assert cache[0][0].sharding.is_equivalent_to(wanted, 4)
    results.append((np.asarray(logits), np.asarray(cache[1][0])))
  for a, b in zip(*results, strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(2, 1), (1, 2), (2, 2)])
def test_two_all_reduces_a_layer_and_no_cache_on_the_wire(shape):
  network, batch, slots = tiny.network("qwen2"), 4, 64
  mesh = sharding.make_mesh(*shape)
  params, cache = _place(mesh, network, batch, slots)
  rows = NamedSharding(mesh, sharding.batch_spec(batch, mesh))
  tokens, start = jax.device_put(
    (jnp.zeros((batch, 3), jnp.int32), jnp.zeros(batch, jnp.int32)), rows
  )
  run = jax.jit(network.forward, donate_argnums=3)
  text = run.lower(params, tokens, start, cache).compile().as_text()
  reduces = len(re.findall(r" all-reduce(?:-start)?\(", text))
  # One more looks up embeddings in a table that is cut by rows.
  assert reduces == (2 * network.config.num_layers + 1 if shape[1] > 1 else 0)
  # XLA for CPU sends the new slots around; for TPU it does not, see
  # tests/models/test_tpu.py.
  moved = re.findall(
    r"= \w+\[([\d,]*)\]\S* (?:all-gather|all-to-all|collective-permute)\(",
    text,
  )
  assert not [shape for shape in moved if str(slots) in shape.split(",")]
