"""How checkpoints of a family keep what is ours."""

import dataclasses

import jax
import numpy as np
import pytest
import safetensors.numpy

import specdec_jax as sd
from specdec_jax import sharding
from specdec_jax.models.families import FAMILIES, Stored
from specdec_jax.models.transformer import random_params
from tests import tiny

TOKENS = [3, 1, 4, 1, 5, 9, 2, 6]
WEIGHTS = "model.safetensors"


def test_parameters_that_share_a_tensor_lie_one_after_the_other():
  # As many query heads as fit, fewer key-value heads, so that sizes differ.
  shapes = {
    "embed.weight": (32, 16),
    "layers.1.attention.value.weight": (4, 16),
    "layers.1.attention.key.weight": (4, 16),
    "layers.1.attention.query.weight": (8, 16),
    "layers.1.attention.key.bias": (4,),
    "layers.1.attention.value.bias": (4,),
    "layers.1.attention.query.bias": (8,),
  }
  stored = FAMILIES["GPT2LMHeadModel"].stored(shapes, ["transformer.x"])
  assert stored.keys() == shapes.keys()
  assert stored["embed.weight"] == Stored(
    "transformer.wte.weight", (32, 16), 0, False
  )
  name = "transformer.h.1.attn.c_attn"
  for part, begin in (("query", 0), ("key", 8), ("value", 12)):
    path = f"layers.1.attention.{part}"
    matrix = Stored(f"{name}.weight", (16, 16), begin, True)
    assert stored[f"{path}.weight"] == matrix
    assert matrix.index((slice(1, 3), slice(0, 5))) == (
      slice(0, 5),
      slice(begin + 1, begin + 3),
    )
    vector = Stored(f"{name}.bias", (16,), begin, False)
    assert stored[f"{path}.bias"] == vector
    assert vector.index((slice(1, 3),)) == (slice(begin + 1, begin + 3),)


def test_a_matrix_that_is_transposed_is_not_square_by_accident():
  stored = FAMILIES["GPT2LMHeadModel"].stored(
    {"layers.0.mlp.up.weight": (64, 16)}, ["h.0.mlp.c_fc.weight"]
  )
  assert stored["layers.0.mlp.up.weight"] == Stored(
    "h.0.mlp.c_fc.weight", (16, 64), 0, True
  )


@pytest.mark.parametrize("name", tiny.CONFIGS)
def test_every_number_of_a_checkpoint_is_some_parameters(name):
  network = tiny.network(name)
  params = random_params(network, 0)
  tensors = tiny.tensors(network, params)
  assert sum(t.size for t in tensors.values()) == sum(
    p.size for p in params.values()
  )


@pytest.mark.parametrize("shape", [(1, 1), (1, 2)])
def test_gpt2_with_and_without_its_prefix_and_masks(tmp_path, shape):
  params = tiny.save(tmp_path, "gpt2")
  mesh = sharding.make_mesh(*shape)
  whole = sd.load(tmp_path, dtype="float32", mesh=mesh)
  tensors = safetensors.numpy.load_file(tmp_path / WEIGHTS)
  bare = {k.removeprefix("transformer."): v for k, v in tensors.items()}
  bare["h.0.attn.bias"] = np.ones((1, 1, 64, 64), np.float32)
  bare["h.0.attn.masked_bias"] = np.ones((), np.float32)
  safetensors.numpy.save_file(bare, tmp_path / WEIGHTS)
  for model in (whole, sd.load(tmp_path, dtype="float32", mesh=mesh)):
    assert model.params.keys() == params.keys()
    for path, value in params.items():
      np.testing.assert_array_equal(model.params[path], value, err_msg=path)


def test_faults_of_shared_tensors_are_told_of_the_whole(tmp_path):
  tiny.save(tmp_path, "gpt2")
  tensors = safetensors.numpy.load_file(tmp_path / WEIGHTS)
  name = "transformer.h.0.attn.c_attn.weight"
  tensors[name] = tensors[name].T.copy()
  safetensors.numpy.save_file(tensors, tmp_path / WEIGHTS)
  with pytest.raises(ValueError, match=r"1 fault") as error:
    sd.load(tmp_path, dtype="float32")
  message = f"{name}: wrong shape, expected [16, 48], got [48, 16]"
  assert message in str(error.value)


def test_positions_past_the_last_that_was_learned_are_finite():
  network = tiny.network("gpt2")
  short = dataclasses.replace(network.config, max_length=4)
  network = dataclasses.replace(network, config=short)
  params = random_params(network, 0)
  cache = network.init_cache(1, 8)
  hidden, _, _ = jax.jit(network.forward)(
    params, np.array([TOKENS]), np.zeros(1, int), cache
  )
  assert np.isfinite(hidden).all()
