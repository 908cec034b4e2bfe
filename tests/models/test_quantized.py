"""Networks in int8: the same as one of floats that has their weights."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax import quantize
from specdec_jax.models import decoder, matrix
from specdec_jax.models.transformer import (
  TransformerNetwork,
  quantized,
  random_params,
)
from tests import tiny
from tests.models.test_transformer import SLOTS, run

# One of each family, and one whose head is the embedding: the last of CONFIGS.
NAMES = {
  (config.architecture, config.tied): name
  for name in tiny.CONFIGS
  for config in [tiny.network(name).config]
}


def int8(network):
  return dataclasses.replace(network, quantize="int8")


def dequantized(params):
  """Floats for a network without int8."""
  floats = {}
  for path, value in params.items():
    if path.endswith(quantize.SCALE):
      continue
    scale = params.get(path + quantize.SCALE)
    floats[path] = value if scale is None else quantize.dequantize(value, scale)
  return floats


def logits(network, params, batch=3):
  tokens = np.random.default_rng(3).integers(0, 32, (batch, 12))
  cache = network.init_cache(batch, SLOTS)
  return run(network, params, tokens, np.zeros(batch, int), cache)[0]


@pytest.mark.parametrize("name", NAMES.values())
def test_logits_are_those_of_the_dequantised_weights(name):
  network = tiny.network(name)
  params = random_params(int8(network), 1)
  np.testing.assert_allclose(
    logits(int8(network), params),
    logits(network, dequantized(params)),
    rtol=1e-4,
    atol=1e-4,
  )


def test_a_head_of_some_tokens_has_scales_of_its_own():
  network = tiny.network("llama")
  config = dataclasses.replace(network.config, draft_vocab_size=5)
  network = dataclasses.replace(network, config=config)
  id_N = np.array([2, 3, 11, 30, 31], np.int32)
  params = random_params(int8(network), 1) | {"draft_vocab_ids": id_N}
  assert params["head.weight_scale"].shape == (5,)
  found = logits(int8(network), params)
  wanted = logits(network, dequantized(params))
  np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
  assert (found[..., id_N] > -100).all()


@pytest.mark.parametrize("name", ["qwen2", "gemma3", "gpt2-untied"])
def test_matrices_and_embeddings_are_in_int8_and_nothing_else(name):
  network = tiny.network(name)
  infos = int8(network).param_infos()
  params = random_params(int8(network), 0)
  assert {path: value.dtype.name for path, value in params.items()} == {
    path: info.dtype for path, info in infos.items()
  }
  plain = random_params(network, 0)
  for path, info in network.param_infos().items():
    if len(info.shape) == 2 and path != "positions.weight":
      assert infos[path].dtype == "int8"
      scales = infos[path + quantize.SCALE]
      # They lie where the rows lie.
      assert (scales.axes, scales.units, scales.dtype) == (
        info.axes[:1],
        info.units[:1],
        "float32",
      )
    else:
      assert infos[path] == info
      np.testing.assert_array_equal(params[path], plain[path])
  scales = {path for path in infos if path.endswith(quantize.SCALE)}
  assert infos.keys() - scales == network.param_infos().keys()


def test_int8_is_near_what_it_was_made_of():
  network = tiny.network("qwen3-tied-biases")
  whole = logits(network, random_params(network, 2))
  error = abs(logits(int8(network), random_params(int8(network), 2)) - whole)
  assert 0 < error.mean() < 0.05
  assert error.max() < 0.5


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_products_for_other_platforms_give_the_same(dtype):
  network = int8(tiny.network("llama", dtype))
  params = random_params(network, 1)
  here = logits(network, params)
  other = logits(dataclasses.replace(network, platform="tpu"), params)
  assert here.dtype == other.dtype == jnp.float32
  error = abs(here - other)
  assert error.max() < (1e-4 if dtype == "float32" else 0.5)
  assert error.mean() < 0.05


@pytest.mark.parametrize("upcast", [False, True])
def test_scales_are_not_rounded_to_the_types_of_activations(upcast):
  config = tiny.network("llama").config
  types = matrix.Types(jnp.dtype("bfloat16"), quantized=True, upcast=upcast)
  table = decoder.Table("vocab", 32, config, types)
  rng = np.random.default_rng(0)
  q, scale = quantize.quantize(rng.standard_normal((32, 16)))
  table.weight.set_value(jnp.asarray(q))
  table.weight_scale.set_value(jnp.asarray(scale))
  row_BT = np.array([[3, 31, 0]])
  looked_up = table(row_BT)
  assert looked_up.dtype == jnp.bfloat16
  rows = quantize.dequantize(q, scale)[row_BT]
  np.testing.assert_array_equal(looked_up, rows.astype(looked_up.dtype))
  x = jnp.asarray(rng.standard_normal((1, 3, 16)), jnp.bfloat16)
  exact = np.asarray(x, float) @ (q * scale[:, None].astype(float)).T
  found = table.product(x, jnp.float32)
  np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-5)
  if upcast:  # what is wanted in fewer bits is rounded once
    found = np.asarray(table.product(x, jnp.bfloat16), float)
    np.testing.assert_allclose(found, exact, rtol=1.01 * 2**-8, atol=1e-6)


@pytest.mark.skipif(
  jax.__version_info__ < (0, 11), reason="the XLA of jax 0.10 keeps them all"
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_loop_on_a_cpu_keeps_no_float_copies(dtype):
  """XLA would turn all weights into floats before a loop, and keep them."""
  network = tiny.network("llama", dtype)
  sizes = {"hidden_size": 64, "mlp_size": 512, "num_layers": 3}
  config = dataclasses.replace(network.config, **sizes)
  network = TransformerNetwork(config, dtype, "cpu", "int8")
  params = random_params(network, 0)

  @jax.jit
  def loop(params, cache, steps):
    def body(carry):
      step, tokens_BT, cache = carry
      start_B = jnp.full(1, step)
      hidden, _, cache = network.forward(params, tokens_BT, start_B, cache)
      tokens_BT = network.head(params, hidden).argmax(-1)
      return step + 1, tokens_BT.astype(jnp.int32), cache

    carry = (jnp.zeros((), jnp.int32), jnp.zeros((1, 2), jnp.int32), cache)
    return jax.lax.while_loop(lambda carry: carry[0] < steps, body, carry)

  compiled = loop.lower(params, network.init_cache(1, 8), 5).compile()
  matrices = [leaf for leaf in params.values() if leaf.dtype == jnp.int8]
  floats = 4 * sum(leaf.size for leaf in matrices)
  assert compiled.memory_analysis().temp_size_in_bytes < floats / 4


def test_one_row_is_enough_in_int8():
  """It is multiplied in float32 on a CPU, whatever the activations are."""
  for dtype in ("float32", "bfloat16"):
    for platform in ("cpu", "tpu"):
      network = TransformerNetwork(
        tiny.network("llama").config, dtype, platform, "int8"
      )
      assert network.min_rows == 1


def test_programs_are_not_shared_with_networks_of_floats():
  network = tiny.network("llama")
  assert int8(network) == int8(tiny.network("llama")) != network


def test_quantising_floats_is_what_random_weights_do():
  network = tiny.network("llama")
  params = quantized(int8(network), random_params(network, 4))
  wanted = random_params(int8(network), 4)
  assert params.keys() == wanted.keys()
  for path, value in wanted.items():
    np.testing.assert_array_equal(params[path], value)


@pytest.mark.parametrize("value", ["int4", "INT8", "", 8, True])
def test_another_quantisation_is_refused(value):
  with pytest.raises(ValueError, match=r"quantize .* supported: int8, or None"):
    dataclasses.replace(tiny.network("llama"), quantize=value)
