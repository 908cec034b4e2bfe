"""Eight simulated devices write what one writes."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding

import specdec_jax as sd
from specdec_jax import sharding
from tests.decode import toys

TARGET = toys.tiny("qwen3", layers=2)
# Its first layer, not quite: it is often right.
DRAFT = toys.perturbed(toys.tiny("qwen3"), scale=0.1, seed=1)
# Ragged, and each with its own temperature: even rows are greedy.
PROMPTS = [list(range(1, 2 + 3 * row)) for row in range(8)]
SAMPLING = [
  sd.SamplingParams(temperature=row % 2, seed=row) for row in range(8)
]
NEW = 24


def on(mesh, model, split=True):
  """A model as `load` would place it."""
  size = model.network.config.vocab_size
  rows = sharding.vocab_rows(size, mesh)
  network = dataclasses.replace(
    model.network,
    config=model.network.config.with_vocab(size, rows),
    split=split,
  )
  params = {}
  for path, info in network.param_infos().items():
    value = model.params[path]
    more = [(0, n - m) for n, m in zip(info.shape, value.shape, strict=True)]
    where = NamedSharding(mesh, info.spec(mesh))
    params[path] = jax.device_put(jnp.pad(value, more), where)
  return dataclasses.replace(model, network=network, params=params, mesh=mesh)


def written(mesh, split, rule, sampling=SAMPLING):
  target, draft = on(mesh, TARGET), on(mesh, DRAFT, split)
  drafter = sd.DraftModel(draft, num_draft_tokens=3)
  decoder = sd.SpeculativeDecoder(target, drafter, rule)
  return decoder.generate(PROMPTS, max_new_tokens=NEW, sampling=sampling)


@pytest.fixture(scope="module")
def alone():
  return written(sharding.make_mesh(), True, "gumbel")


@pytest.mark.parametrize("data, model", [(1, 8), (2, 4), (8, 1)])
@pytest.mark.parametrize("split", [True, False], ids=["split", "replicated"])
def test_tokens_are_those_of_one_device(alone, data, model, split):
  mesh = sharding.make_mesh(data, model)
  found = written(mesh, split, "gumbel")
  assert found.tokens == alone.tokens
  # Not by never drafting well, or never badly.
  rates = [alone.stats.acceptance_rate, found.stats.acceptance_rate]
  assert rates[0] == rates[1] and 0.1 < rates[0] < 0.9


def test_greedy_tokens_are_those_of_one_device(alone):
  # Where all rows are greedy, another program runs.
  greedy = sd.SamplingParams()
  found = written(sharding.make_mesh(2, 4), True, "block", greedy)
  assert found.tokens[::2] == alone.tokens[::2]


def test_a_cache_is_on_no_device_whole():
  # Two key-value heads on four ways: each lies on two of them.
  mesh = sharding.make_mesh(2, 4)
  model = on(mesh, TARGET)
  cache = jax.eval_shape(lambda: model.network.init_cache(8, 64))
  (key, _), *_ = sharding.of_rows(mesh, cache, model.network.cache_axes)
  assert key.shard_shape((8, 2, 64, 8)) == (4, 1, 64, 8)
  weight = model.params["layers.0.attention.key.weight"]
  assert {shard.data.shape for shard in weight.addressable_shards} == {(8, 32)}
  logits = model.network.head(model.params, jnp.ones((1, 1, 32)))
  assert np.isfinite(logits).all()
