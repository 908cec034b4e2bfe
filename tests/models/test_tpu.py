"""The forward pass compiled for TPUs that are not here."""

import collections
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import topologies
from jax.sharding import NamedSharding, PartitionSpec

from specdec_jax import sharding
from specdec_jax.models.config import ModelConfig
from specdec_jax.models.transformer import TransformerNetwork

BATCH, TOKENS, SLOTS, LAYERS = 8, 5, 2048, 2
FAMILIES = {
  "qwen3": {"architecture": "Qwen3ForCausalLM", "qk_norm": True},
  "gemma3": {
    "architecture": "Gemma3ForCausalLM",
    "local_rope_theta": 1e4,
    "window": 512,
    "full_layers": (1,),
    "norm_offset": 1,
    "post_norms": True,
    "scaled_embed": True,
    "tied": True,
    "qk_norm": True,
    "score_cap": 50.0,
  },
}


@pytest.fixture(scope="module")
def chips():
  pytest.importorskip("libtpu")
  with pytest.MonkeyPatch.context() as patch:
    patch.setenv("TPU_SKIP_MDS_QUERY", "1")
    patch.setenv("TPU_WORKER_HOSTNAMES", "localhost")
    patch.setenv("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    yield topologies.get_topology_desc(
      platform="tpu", topology_name="v5e:2x2"
    ).devices


def _mesh(chips, shape):
  return sharding.make_mesh(*shape, chips[: shape[0] * shape[1]])


def _network(family, quantize=None):
  """A model of 8B's widths."""
  config = ModelConfig(
    vocab_size=32768,
    num_layers=LAYERS,
    hidden_size=4096,
    mlp_size=12288,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    rope_theta=1e6,
    max_length=40960,
    **FAMILIES[family],
  )
  return TransformerNetwork(config, "bfloat16", "tpu", quantize)


def _compile(mesh, network):
  """A loop of passes, the cache donated."""

  def on(spec, shape, dtype):
    where = NamedSharding(mesh, spec)
    return jax.ShapeDtypeStruct(shape, dtype, sharding=where)

  params = {
    path: on(info.spec(mesh), info.shape, info.dtype)
    for path, info in network.param_infos().items()
  }
  cache = jax.eval_shape(lambda: network.init_cache(BATCH, SLOTS))
  cache = jax.tree.map(
    lambda leaf, where: on(where.spec, leaf.shape, leaf.dtype),
    cache,
    sharding.of_rows(mesh, cache),
  )
  rows = sharding.batch_spec(BATCH, mesh)
  tokens = on(rows, (BATCH, TOKENS), jnp.int32)
  start = on(rows, (BATCH,), jnp.int32)
  steps = on(PartitionSpec(), (), jnp.int32)

  def loop(params, cache, tokens_BT, start_B, steps):
    def body(carry):
      step, tokens_BT, start_B, cache = carry
      hidden, _, cache = network.forward(params, tokens_BT, start_B, cache)
      # Something that keeps the hidden states alive and stays in its row.
      tokens_BT = tokens_BT + (hidden[..., 0] > 0)
      return step + 1, tokens_BT, start_B + 1, cache

    carry = (jnp.zeros((), jnp.int32), tokens_BT, start_B, cache)
    return lax.while_loop(lambda carry: carry[0] < steps, body, carry)

  jitted = jax.jit(loop, donate_argnums=1)
  return jitted.lower(params, cache, tokens, start, steps).compile()


def _collectives(text):
  return collections.Counter(
    re.findall(
      r" (all-reduce|all-gather|all-to-all|collective-permute)(?:-start)?\(",
      text,
    )
  )


# What was compiled for chips that are not here cannot be read from the cache.
@pytest.mark.filterwarnings("ignore:Error reading persistent compilation")
@pytest.mark.aot
@pytest.mark.parametrize(
  "shape, family",
  [
    ((1, 1), "qwen3"),
    ((1, 4), "qwen3"),
    ((2, 2), "qwen3"),
    ((2, 2), "gemma3"),
  ],
)
def test_tpu_program_moves_no_cache(chips, shape, family):
  compiled = _compile(_mesh(chips, shape), _network(family))
  memory = compiled.memory_analysis()
  shard = (BATCH // shape[0], 8 // shape[1], SLOTS, 128)
  size = int(np.prod(shard)) * 2
  assert memory.alias_size_in_bytes >= 2 * LAYERS * size
  assert memory.temp_size_in_bytes < 2 * size
  text = compiled.as_text()
  dims = ",".join(map(str, shard))
  assert not re.findall(rf"= bf16\[{dims}\]\S* (?:copy|transpose)\(", text)
  reduces = 2 * LAYERS + 1 if shape[1] > 1 else 0
  assert _collectives(text) == ({"all-reduce": reduces} if reduces else {})


@pytest.mark.filterwarnings("ignore:Error reading persistent compilation")
@pytest.mark.aot
@pytest.mark.parametrize(
  "shape, family", [((1, 1), "qwen3"), ((1, 4), "qwen3"), ((2, 2), "gemma3")]
)
def test_tpu_program_reads_weights_in_8_bits(chips, shape, family):
  mesh, network = _mesh(chips, shape), _network(family, "int8")
  shards = {
    NamedSharding(mesh, info.spec(mesh)).shard_shape(info.shape)
    for info in network.param_infos().values()
    if info.dtype == "int8"
  }
  wide = sum(
    2 * np.prod(NamedSharding(mesh, info.spec(mesh)).shard_shape(info.shape))
    for path, info in _network(family).param_infos().items()
    if not path.startswith("head.")  # which the loop does not use
  )
  compiled = _compile(mesh, network)
  memory = compiled.memory_analysis()
  weights = memory.argument_size_in_bytes - memory.alias_size_in_bytes
  assert wide / 2 < weights < 0.51 * wide
  # Half of what one matrix of the mlp takes in 8 bits.
  assert memory.temp_size_in_bytes < 12288 * 4096 // shape[1] // 2
  text = compiled.as_text()
  for rows, columns in shards:
    # Products take int8 as it is: nowhere, fused or not, are there floats.
    assert re.findall(rf"s8\[{rows},{columns}\b", text)
    assert not re.findall(rf"= (?:bf16|f32)\[{rows},{columns}\b", text)
  # One more looks up scales.
  reduces = 2 * LAYERS + 2 if shape[1] > 1 else 0
  assert _collectives(text) == ({"all-reduce": reduces} if reduces else {})
