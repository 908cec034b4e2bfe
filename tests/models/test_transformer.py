"""The network: cache, batches, taps, types and vocabulary."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from specdec_jax.models import kv_cache
from specdec_jax.models.transformer import TransformerNetwork, random_params
from tests import tiny

SLOTS = 16


@functools.partial(jax.jit, static_argnames=("network", "taps"))
def run(network, params, tokens_BT, start_B, cache, taps=()):
  start_B = jnp.asarray(start_B)
  hidden, tapped, cache = network.forward(
    params, tokens_BT, start_B, cache, taps
  )
  return network.head(params, hidden), tapped, cache


@pytest.fixture(scope="module")
def network():
  return tiny.network("qwen2")


@pytest.fixture(scope="module")
def params(network):
  return random_params(network, 1)


@pytest.fixture(scope="module")
def tokens():
  return np.random.default_rng(3).integers(0, 32, (3, 12))


def test_padding_behind_a_row_does_not_reach_it(network, params, tokens):
  cache = network.init_cache(3, SLOTS)
  start = np.zeros(3, int)
  whole, _, _ = run(network, params, tokens, start, cache)
  padded = tokens.copy()
  padded[0, 5:] = 0
  padded[1, 9:] = 31
  logits, _, _ = run(network, params, padded, start, cache)
  np.testing.assert_array_equal(logits[0, :5], whole[0, :5])
  np.testing.assert_array_equal(logits[1, :9], whole[1, :9])
  np.testing.assert_array_equal(logits[2], whole[2])


@pytest.mark.parametrize("name", ["qwen2", "gemma3"])
def test_a_whole_text_needs_no_cache(name, tokens):
  """So what is trained is what decodes, with windows too."""
  network = tiny.network(name)
  params = random_params(network, 1)
  start = np.zeros(3, int)
  cached, _, _ = run(
    network, params, tokens, start, network.init_cache(3, SLOTS)
  )
  free, _, _ = run(network, params, tokens, start, None)
  np.testing.assert_allclose(free, cached, rtol=1e-4, atol=1e-4)


def test_a_row_does_not_see_its_neighbours(network, params, tokens):
  start = np.zeros(3, int)
  cache = network.init_cache(3, SLOTS)
  whole, _, _ = run(network, params, tokens, start, cache)
  changed = tokens.copy()
  changed[1] = changed[1, ::-1]
  logits, _, _ = run(network, params, changed, start, cache)
  np.testing.assert_array_equal(logits[::2], whole[::2])


def test_rejected_slots_are_rolled_back_by_not_counting_them(
  network, params, tokens
):
  start = np.zeros(3, int)
  cache = network.init_cache(3, SLOTS)
  expected, _, _ = run(network, params, tokens, start, cache)
  _, _, cache = run(network, params, tokens[:, :4], start, cache)
  # Three passes of drafts at different places of each row, all rejected.
  place = np.array([4, 2, 3])
  for seed in range(3):
    drafts = np.random.default_rng(seed).integers(0, 32, (3, 4))
    _, _, cache = run(network, params, drafts, place, cache)
  index = place[:, None] + np.arange(4)
  chunk = np.take_along_axis(tokens, index, axis=1)
  logits, _, _ = run(network, params, chunk, place, cache)
  wanted = np.take_along_axis(np.asarray(expected), index[..., None], axis=1)
  np.testing.assert_allclose(logits, wanted, rtol=1e-5, atol=1e-5)


def test_slots_behind_the_newest_token_may_hold_anything_finite(
  network, params, tokens
):
  start = np.zeros(3, int)
  empty = network.init_cache(3, SLOTS)
  full = jax.tree.map(lambda leaf: jnp.full_like(leaf, 1e4), empty)
  a, _, _ = run(network, params, tokens[:, :4], start, empty)
  b, _, _ = run(network, params, tokens[:, :4], start, full)
  np.testing.assert_array_equal(a, b)


def test_writes_past_the_cache_are_dropped():
  cache = jnp.zeros((2, 1, 4, 1))
  new = jnp.arange(1.0, 7.0).reshape(2, 1, 3, 1)
  position = jnp.array([[2, 3, 4], [0, 1, 2]])
  written = kv_cache.write(cache, new, position)[:, 0, :, 0]
  np.testing.assert_array_equal(written, [[0, 0, 1, 2], [4, 5, 6, 0]])


def test_the_cache_is_written_in_place(network, params):
  # A copy of a whole cache in the loop would cost more than the write.
  batch, slots = 3, 1024

  @functools.partial(jax.jit, donate_argnames="cache")
  def loop(params, cache, steps):
    def body(carry):
      step, tokens_BT, cache = carry
      start_B = jnp.full(batch, step)
      hidden, _, cache = network.forward(params, tokens_BT, start_B, cache)
      tokens_BT = network.head(params, hidden).argmax(-1)
      return step + 1, tokens_BT.astype(jnp.int32), cache

    tokens_BT = jnp.zeros((batch, 2), jnp.int32)
    carry = (jnp.zeros((), jnp.int32), tokens_BT, cache)
    return lax.while_loop(lambda carry: carry[0] < steps, body, carry)

  cache = network.init_cache(batch, slots)
  compiled = loop.lower(params, cache, 5).compile()
  size = sum(leaf.nbytes for leaf in jax.tree.leaves(cache))
  assert compiled.memory_analysis().alias_size_in_bytes >= size
  shape = ",".join(map(str, cache[0][0].shape))
  copies = [
    line
    for line in compiled.as_text().splitlines()
    if f"f32[{shape}]" in line.split(" copy(")[0] and " copy(" in line
  ]
  assert not copies


def test_taps_are_the_residual_stream(network, params, tokens):
  cache = network.init_cache(3, SLOTS)
  start = np.zeros(3, int)
  _, none, _ = run(network, params, tokens, start, cache)
  assert none.shape == (3, 12, 0)
  _, both, _ = run(network, params, tokens, start, cache, (1, 0))
  _, first, _ = run(network, params, tokens, start, cache, (0,))
  np.testing.assert_array_equal(both[..., 16:], first)
  # After the last layer only the norm and the head are left.
  last = np.asarray(both[..., :16])
  rms = np.sqrt((last**2).mean(-1, keepdims=True) + 1e-5)
  hidden = jnp.asarray(last / rms) * params["final_norm.scale"][None, None]
  logits, _, _ = run(network, params, tokens, start, cache)
  np.testing.assert_allclose(
    network.head(params, hidden), logits, rtol=1e-4, atol=1e-4
  )


def test_a_tap_that_is_no_layer_is_refused(network, params, tokens):
  with pytest.raises(ValueError, match="there are 2"):
    network.forward(params, tokens, jnp.zeros(3), None, taps=(2,))


@pytest.mark.parametrize("name", ["llama", "qwen3-tied-biases"])
def test_bfloat16_is_near_float32(name, tokens):
  wide, narrow = tiny.network(name), tiny.network(name, "bfloat16")
  logits = []
  for net in (wide, narrow):
    cache = net.init_cache(3, SLOTS)
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(cache)} == {net.dtype}
    out, _, _ = run(net, random_params(net, 2), tokens, np.zeros(3, int), cache)
    assert out.dtype == jnp.float32
    logits.append(np.asarray(out))
  error = np.abs(logits[0] - logits[1])
  assert 0 < error.mean() < 0.05
  assert error.max() < 0.5


def test_embeddings_are_scaled_by_a_number_of_their_own_type(tokens):
  config = dataclasses.replace(
    tiny.network("gemma2").config, hidden_size=12, num_layers=1
  )
  network = TransformerNetwork(config, "bfloat16")
  params = random_params(network, 0)
  # A layer that adds nothing, so that its tap is the embedding.
  params |= {
    path: -jnp.ones_like(value)
    for path, value in params.items()
    if ".after_" in path
  }
  cache = network.init_cache(3, SLOTS)
  _, tapped, _ = run(network, params, tokens, np.zeros(3, int), cache, (0,))
  rows = np.asarray(params["embed.weight"])[tokens]
  expected = rows * np.sqrt(12).astype(rows.dtype)
  assert expected.dtype == rows.dtype
  np.testing.assert_array_equal(tapped, expected)
  assert (expected != (rows * np.float32(12**0.5)).astype(rows.dtype)).any()


def test_min_rows_is_the_platforms():
  def rows(dtype, platform):
    return dataclasses.replace(
      tiny.network("llama", dtype), platform=platform
    ).min_rows

  assert rows("bfloat16", "cpu") == 2
  assert rows("float32", "cpu") == 1
  assert rows("bfloat16", "tpu") == 1


def test_products_for_other_platforms_give_the_same(params, tokens):
  network = tiny.network("qwen2")
  other = dataclasses.replace(network, platform="tpu")
  cache = network.init_cache(3, SLOTS)
  a, _, _ = run(network, params, tokens, np.zeros(3, int), cache)
  b, _, _ = run(other, params, tokens, np.zeros(3, int), cache)
  np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_tokens_that_the_checkpoint_lacks_are_never_likely(tokens):
  network = tiny.network("llama")
  config = network.config.with_vocab(40, rows=48)
  assert (config.vocab_size, config.known_rows) == (48, 32)
  padded = TransformerNetwork(config, "float32")
  params = random_params(network, 0)
  more = {
    path: jnp.pad(value, ((0, 16), (0, 0)), constant_values=9.0)
    if path in ("embed.weight", "head.weight")
    else value
    for path, value in params.items()
  }
  start = np.zeros(3, int)
  cache = network.init_cache(3, SLOTS)
  a, _, _ = run(network, params, tokens, start, cache)
  b, _, _ = run(padded, more, tokens, start, cache)
  assert b.shape == (3, 12, 48)
  np.testing.assert_array_equal(a, b[..., :32])
  assert np.isfinite(b).all()
  assert (np.asarray(jax.nn.softmax(b))[..., 32:] == 0).all()


def test_foreign_ids_do_not_make_nan(network, params):
  cache = network.init_cache(1, SLOTS)
  foreign = np.array([[-5, 31, 32, 10**6]])
  logits, _, _ = run(network, params, foreign, np.zeros(1, int), cache)
  assert np.isfinite(logits).all()


def test_random_params_are_the_same_for_the_same_seed(network):
  a, b, c = (random_params(network, seed) for seed in (0, 0, 1))
  assert a.keys() == network.param_infos().keys()
  assert all(np.array_equal(a[path], b[path]) for path in a)
  assert not any(np.array_equal(a[path], c[path]) for path in a)


def test_networks_are_hashable_and_equal_by_value():
  assert tiny.network("llama3") == tiny.network("llama3")
  assert hash(tiny.network("llama3")) == hash(tiny.network("llama3"))
  assert tiny.network("llama3") != tiny.network("llama")


@pytest.mark.parametrize("dtype", ["float16", "int8", "bf16", ""])
def test_other_dtypes_are_refused(dtype):
  with pytest.raises(ValueError, match="supported: float32, bfloat16"):
    tiny.network("llama", dtype)
