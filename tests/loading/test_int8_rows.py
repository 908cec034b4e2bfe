"""Checkpoints loaded in int8, on one device and on several."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

import specdec_jax as sd
from specdec_jax import quantize, sharding
from specdec_jax.loading import int8_rows
from specdec_jax.loading.int8_rows import Int8Rows
from specdec_jax.models.transformer import quantized
from tests import tiny

# GPT-2's are stored turned, Phi-3's several in one tensor.
NAMES = ["llama", "gpt2", "phi3", "gemma3", "qwen2-tied"]


def load(folder, dtype="float32", **kwargs):
  return sd.load(folder, dtype=dtype, quantize="int8", **kwargs)


def assert_same(params, expected):
  assert params.keys() == expected.keys()
  for path, value in expected.items():
    assert params[path].dtype == value.dtype, path
    np.testing.assert_array_equal(params[path], value, err_msg=path)


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_those_in_the_file_quantised(tmp_path, name):
  params = tiny.save(tmp_path, name)
  model = load(tmp_path)
  network = dataclasses.replace(
    tiny.network(name), platform="cpu", quantize="int8"
  )
  assert model.network == network
  assert_same(model.params, quantized(network, params))


@pytest.mark.parametrize("shape", [(1, 2), (1, 4), (2, 2)])
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_mesh_changes_nothing(tmp_path, name, shape):
  """Not even where it cuts the rows that the scales are of."""
  tiny.save(tmp_path, name)
  mesh = sharding.make_mesh(*shape)
  params = load(tmp_path, mesh=mesh).params
  assert_same(params, load(tmp_path).params)
  down = params["layers.0.mlp.down.weight"]
  rows, columns = down.shape
  assert down.addressable_shards[0].data.shape == (rows, columns // shape[1])
  assert params["layers.0.mlp.down.weight_scale"].is_fully_replicated
  up = params["layers.0.mlp.up.weight_scale"]
  assert up.addressable_shards[0].data.shape == (up.size // shape[1],)


def test_activations_in_bfloat16_have_the_same_weights(tmp_path):
  """They are quantised as stored, without rounding them in between."""
  tiny.save(tmp_path, "llama")
  wide, narrow = load(tmp_path), load(tmp_path, "bfloat16")
  for path, value in wide.params.items():
    if path.endswith(quantize.SCALE) or value.dtype == jnp.int8:
      np.testing.assert_array_equal(narrow.params[path], value)
    else:
      assert narrow.params[path].dtype == jnp.bfloat16


def test_tokens_that_the_checkpoint_lacks_are_never_likely(tmp_path):
  tiny.save(tmp_path, "llama")
  tiny.save_tokenizer(tmp_path, 41)
  model = load(tmp_path, mesh=sharding.make_mesh(1, 2))
  assert model.params["head.weight_scale"].shape == (42,)
  logits = model.logits([3, 1, 4])
  assert (logits[:, 32:] == -1e30).all() and (abs(logits[:, :32]) < 100).all()


def test_a_row_that_is_not_finite_is_not_hidden(tmp_path):
  tiny.save(tmp_path, "llama")
  file = tmp_path / "model.safetensors"
  tensors = safetensors.numpy.load_file(file)
  tensors["lm_head.weight"][7, 3] = np.inf
  safetensors.numpy.save_file(tensors, file)
  logits = load(tmp_path).logits([3, 1, 4])
  assert (~np.isfinite(logits)).any(axis=0).nonzero()[0].tolist() == [7]


@pytest.mark.parametrize("chunk", [1, 20, 24, 10**6])
def test_rows_are_read_whole_once_and_a_few_at_a_time(monkeypatch, chunk):
  monkeypatch.setattr(int8_rows, "_CHUNK", chunk)
  matrix = np.random.default_rng(0).standard_normal((9, 10))
  seen = []

  def read(bounds):
    seen.append(bounds)
    return matrix[bounds]

  q, scale = quantize.quantize(matrix)
  rows = Int8Rows(read, 10)
  for part in (slice(0, 5), slice(5, 10)):
    np.testing.assert_array_equal(
      rows.weight((slice(2, 9), part)), q[2:9, part]
    )
  np.testing.assert_array_equal(rows.scale((slice(2, 9),)), scale[2:9])
  assert {(columns.start, columns.stop) for _, columns in seen} == {(0, 10)}
  read_rows = [i for own, _ in seen for i in range(own.start, own.stop)]
  assert read_rows == list(range(2, 9))
  most = max(own.stop - own.start for own, _ in seen)
  assert most == min(max(chunk // 10, 1), 7)


@pytest.mark.parametrize("value", ["int4", "", "INT8"])
def test_another_quantisation_is_refused_before_anything_is_read(value):
  with pytest.raises(ValueError, match="supported: int8, or None"):
    sd.load("/no/such/folder", quantize=value)
