"""Students with fewer layers, and with a head of fewer tokens."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import safetensors.numpy

import specdec_jax as sd
from specdec_jax import sharding
from specdec_jax.loading import loader
from specdec_jax.loading.export import export
from specdec_jax.models.config import from_hf
from specdec_jax.models.language_model import LanguageModel
from specdec_jax.models.transformer import TransformerNetwork, random_params
from specdec_jax.training import losses, prune, state
from specdec_jax.training.optimizer import OPTIMIZERS, OptimizerConfig
from specdec_jax.training.student import Student, fresh, from_checkpoint
from specdec_jax.types import LOG_ZERO
from tests import tiny

WEIGHTS = "model.safetensors"
TEXT = [3, 14, 15, 9, 2, 6, 5, 3, 5, 8, 9, 7]  # longer than the windows
# 30 is never seen, 4 and 9 are equally frequent, 31 is special.
TEXTS = ["w9 w9 w4 w4 w7 w7 w7", "w1"]


def student_of(fields, seed=0) -> Student:
  """A student in memory, without tokenizer."""
  network = TransformerNetwork(from_hf(fields), "float32")
  params = random_params(network, seed)
  mesh = sharding.make_mesh()
  model = LanguageModel(network, params, None, (), mesh, name="tiny")
  return Student(model, fields, {})


def deep(name, layers=4):
  """The fields of one of the tiny configs, of more layers."""
  fields = dict(tiny.CONFIGS[name])
  fields["n_layer" if name == "gpt2" else "num_hidden_layers"] = layers
  if "layer_types" in fields:
    fields["layer_types"] = (fields["layer_types"] * layers)[:layers]
  return fields


LAYERED = [
  ("llama", {}),
  ("mistral", {}),
  ("phi3", {}),
  ("gpt2", {}),
  ("gemma2", {}),
  ("gemma3", {}),
  ("qwen2-window", {"max_window_layers": 2}),
  ("qwen3-window", {}),
]


@pytest.mark.parametrize("name, more", LAYERED, ids=[n for n, _ in LAYERED])
def test_layers_keep_what_they_see(name, more):
  """A layer that adds nothing to the stream is no layer."""
  student = student_of(deep(name) | more)
  silent = {
    path: jnp.zeros_like(value)
    for path, value in student.model.params.items()
    if path.startswith(("layers.1.attention.out", "layers.1.mlp.down"))
  }
  whole = dataclasses.replace(
    student.model, params=student.model.params | silent
  )
  pruned = prune.keep_layers(student, [0, 2, 3])
  np.testing.assert_allclose(
    pruned.model.logits(TEXT), whole.logits(TEXT), rtol=1e-5, atol=1e-5
  )
  old, new = student.config, from_hf(json.loads(json.dumps(pruned.fields)))
  assert new == pruned.config
  for i, layer in enumerate([0, 2, 3]):
    assert new.window_of(i) == old.window_of(layer)


def test_layers_come_in_the_order_given():
  student = student_of(deep("gemma2"))
  pruned = prune.keep_layers(student, [3, 0])
  assert pruned.fields["num_hidden_layers"] == 2
  assert pruned.fields["layer_types"] == ["full_attention", "sliding_attention"]
  old, new = student.model.params, pruned.model.params
  for layer, place in ((3, 0), (0, 1)):
    name = "attention.query.weight"
    np.testing.assert_array_equal(
      new[f"layers.{place}.{name}"], old[f"layers.{layer}.{name}"]
    )


@pytest.mark.parametrize(
  "layers, got",
  [([], "none"), ([4], "4"), ([-1, 0], "-1, 0"), ([1, 1], "1, 1")],
)
def test_layers_that_cannot_be_kept(layers, got):
  with pytest.raises(ValueError, match=f"layers of 0 to 3, .*, got {got}$"):
    prune.keep_layers(student_of(deep("llama")), layers)


def folder_of(tmp_path, name, seed=0):
  path = tmp_path / name
  path.mkdir()
  tiny.save(path, name, seed)
  tiny.save_tokenizer(path, 32)
  return path


def limited(tmp_path, name="llama", size=6, mesh=None) -> tuple:
  student = from_checkpoint(
    str(folder_of(tmp_path, name)), mesh or sharding.make_mesh()
  )
  return student, prune.limit_vocabulary(student, TEXTS, size)


@pytest.mark.parametrize("name", ["llama", "llama-tied", "gemma2", "gpt2"])
def test_the_law_of_a_limited_head_is_renormalised(tmp_path, name):
  full, part = limited(tmp_path, name)
  # Seen: 7, then 4 and 9, then 1; the first of the unseen; always the end.
  ids = [0, 1, 4, 7, 9, 31]
  assert np.asarray(part.model.params["draft_vocab_ids"]).tolist() == ids
  assert part.model.network.vocab_size == full.model.network.vocab_size == 32
  expected = full.model.logits(TEXT)
  found = part.model.logits(TEXT)
  others = np.setdiff1d(np.arange(32), ids)
  assert (found[:, others] == LOG_ZERO).all()
  law = np.asarray(jax.nn.softmax(found, axis=-1))
  assert (law[:, others] == 0).all()
  np.testing.assert_allclose(
    law[:, ids], jax.nn.softmax(expected[:, ids], axis=-1), rtol=1e-5
  )
  # In place of the embedding there is a head of its own.
  head = part.model.params["head.weight"]
  table = "embed.weight" if full.config.tied else "head.weight"
  np.testing.assert_array_equal(head, full.model.params[table][np.array(ids)])
  np.testing.assert_array_equal(
    part.model.params["embed.weight"], full.model.params["embed.weight"]
  )


def test_of_equally_frequent_tokens_the_first_is_taken(tmp_path):
  _, part = limited(tmp_path, size=3)
  ids = np.asarray(part.model.params["draft_vocab_ids"]).tolist()
  assert ids == [4, 7, 31]


def test_all_tokens_may_be_kept(tmp_path):
  full, part = limited(tmp_path, size=32)
  np.testing.assert_array_equal(
    part.model.logits(TEXT), full.model.logits(TEXT)
  )


@pytest.mark.parametrize("size", [33, 0, -1])
def test_sizes_that_cannot_be(tmp_path, size):
  with pytest.raises(ValueError, match=f"expected 1 to 32 tokens, .* {size}$"):
    limited(tmp_path, size=size)


def test_heads_that_cannot_be_limited(tmp_path):
  _, part = limited(tmp_path)
  with pytest.raises(ValueError, match="a head of 6 tokens already"):
    prune.limit_vocabulary(part, TEXTS, 4)
  with pytest.raises(ValueError, match="no tokenizer"):
    prune.limit_vocabulary(student_of(deep("llama")), TEXTS, 4)
  config = tmp_path / "config.json"
  config.write_text(json.dumps(part.fields))
  with pytest.raises(ValueError, match="draft_vocab_size is for models that"):
    fresh(config, tmp_path / "llama", 0, sharding.make_mesh())


def same(a: LanguageModel, b: LanguageModel) -> None:
  assert a.network.config == b.network.config
  assert a.params.keys() == b.params.keys()
  for path, value in a.params.items():
    assert value.dtype == b.params[path].dtype
    np.testing.assert_array_equal(value, b.params[path], err_msg=path)


@pytest.mark.parametrize("name", ["llama-tied", "gpt2"])
def test_there_and_back(tmp_path, name):
  _, part = limited(tmp_path, name)
  part.write(tmp_path / "a", part.model.params)
  same(sd.load(tmp_path / "a", dtype="float32"), part.model)
  stored = safetensors.numpy.load_file(tmp_path / "a" / WEIGHTS)
  assert stored["lm_head.weight"].shape == (6, 16)
  assert stored["draft_vocab_ids"].dtype == np.int32
  export(
    loader.open_source(tmp_path / "a"),
    tmp_path / "b",
    form="orbax",
    dtype="bfloat16",
  )
  export(loader.open_source(tmp_path / "b"), tmp_path / "c")
  first, last = sd.load(tmp_path / "a"), sd.load(tmp_path / "c")
  assert first.params["draft_vocab_ids"].dtype == jnp.int32
  same(sd.load(tmp_path / "b"), first)
  same(last, first)


@pytest.mark.parametrize("size", [6, 5])
def test_the_head_lies_on_all_devices(tmp_path, size):
  """Cut where its rows divide over them, else whole on each."""
  _, alone = limited(tmp_path, size=size)
  alone.write(tmp_path / "a", alone.model.params)
  split = sd.load(
    tmp_path / "a", dtype="float32", mesh=sharding.make_mesh(model=2)
  )
  rows, ids = (
    len(split.params[path].addressable_shards[0].data)
    for path in ("head.weight", "draft_vocab_ids")
  )
  assert (rows, ids) == (3 if size == 6 else 5, size)
  np.testing.assert_allclose(
    split.logits(TEXT), alone.model.logits(TEXT), rtol=1e-5, atol=1e-5
  )


@pytest.mark.parametrize(
  "ids, message",
  [
    ([0, 1, 1, 4, 5, 6], "6 different tokens in rising order"),
    ([1, 0, 3, 4, 5, 6], "6 different tokens in rising order"),
    ([-1, 0, 3, 4, 5, 6], "6 different tokens in rising order"),
    ([0, 1, 3, 4, 5, 32], "all below 32"),
    ([0, 1, 3], r"draft_vocab_ids: wrong shape, expected \[6\], got \[3\]"),
    ([0.0, 1, 3, 4, 5, 6], "draft_vocab_ids: type F64 is not supported"),
    (None, "draft_vocab_ids: missing"),
  ],
)
def test_broken_token_ids_are_refused(tmp_path, ids, message):
  _, part = limited(tmp_path)
  part.write(tmp_path / "a", part.model.params)
  stored = safetensors.numpy.load_file(tmp_path / "a" / WEIGHTS)
  del stored["draft_vocab_ids"]
  if ids is not None:
    array = np.array(ids)
    kind = np.int32 if array.dtype == np.int64 else array.dtype
    stored["draft_vocab_ids"] = array.astype(kind)
  safetensors.numpy.save_file(stored, tmp_path / "a" / WEIGHTS)
  with pytest.raises(ValueError, match=message):
    sd.load(tmp_path / "a")
  with pytest.raises(ValueError, match=message):
    export(loader.open_source(tmp_path / "a"), tmp_path / "b")


@pytest.mark.parametrize(
  "more, message",
  [
    ({"draft_vocab_size": 33}, "draft_vocab_size is 33, .*at most vocab_size"),
    ({"draft_vocab_size": 0}, "draft_vocab_size is 0, .*positive integer"),
    (
      {"draft_vocab_size": 3, "tie_word_embeddings": True},
      "tie_word_embeddings is True, expected false with a draft_vocab_size",
    ),
  ],
)
def test_configs_of_heads_that_cannot_be(more, message):
  with pytest.raises(ValueError, match=message):
    from_hf(tiny.CONFIGS["llama"] | more)


@pytest.fixture(scope="module")
def rows_BT():
  return np.random.default_rng(0).integers(0, 32, (4, 13)).astype(np.int32)


@pytest.mark.parametrize("loss", [losses.CROSS_ENTROPY, *losses.DISTILLATION])
def test_gradients_of_every_loss_reach_the_head(tmp_path, rows_BT, loss):
  full, part = limited(tmp_path, "llama")
  teacher = None if loss == losses.CROSS_ENTROPY else full.network
  objective = state.Objective(part.network, teacher, loss)
  weights = random_params(full.network, seed=5)
  params = dict(part.model.params)
  fixed = {"draft_vocab_ids": params.pop("draft_vocab_ids")}

  @jax.jit
  def differentiate(params):
    weight_BT = jnp.ones((4, 12))
    return jax.value_and_grad(
      lambda p: objective(
        state.whole(p, fixed), weights, rows_BT, weight_BT, 48
      )
    )(params)

  value, gradient = differentiate(params)
  assert np.isfinite(value) and value > 0
  for path, leaf in gradient.items():
    assert np.isfinite(leaf).all(), path
  assert np.abs(gradient["head.weight"]).max() > 1e-4
  norm = float(optax.tree.norm(gradient))

  def along(step):
    """The loss so far along the gradient."""
    moved = jax.tree.map(lambda p, g: p + step / norm * g, params, gradient)
    return float(differentiate(moved)[0])

  # Total variation has kinks, so it is not exact.
  slope = (along(1e-3) - along(-1e-3)) / 2e-3
  assert slope == pytest.approx(norm, rel=0.1)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_token_ids_are_not_trained(tmp_path, rows_BT, optimizer):
  full, part = limited(tmp_path, "llama")
  mesh = part.model.mesh
  before = jax.tree.map(np.asarray, part.model.params)
  network = dataclasses.replace(part.network, dtype="bfloat16")
  config = OptimizerConfig(name=optimizer, warmup_steps=0, learning_rate=0.01)
  transformation = config.make(3)
  now = state.init_state(part.model.params, transformation, True, mesh)
  assert "draft_vocab_ids" not in now.params
  teacher = random_params(full.network, seed=5)
  objective = state.Objective(network, full.network, "total_variation")
  step = state.make_step(objective, transformation, 0.5, 2, now)
  for _ in range(3):
    now, measured = step(now, teacher, rows_BT, np.ones((4, 12), "f4"))
    assert np.isfinite(measured["loss"])
  model = state.as_model(part.model, network, now.result)
  assert model.params["head.weight"].dtype == jnp.bfloat16
  for params in (now.result, model.params):
    assert params["draft_vocab_ids"].dtype == jnp.int32
    assert (params["draft_vocab_ids"] == before["draft_vocab_ids"]).all()
  for path, value in before.items():
    changed = (np.asarray(now.result[path]) != value).any()
    assert changed == (path != "draft_vocab_ids"), path
  assert (model.logits(TEXT)[:, 2] == LOG_ZERO).all()
