"""Checkpoints in folders: what is read, and what is refused."""

import dataclasses
import fnmatch
import json
import pathlib

import jax
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

import specdec_jax as sd
from specdec_jax import sharding
from specdec_jax.loading import hf
from tests import tiny

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
TOKENS = [3, 1, 4, 1, 5, 9, 2, 6]


@pytest.fixture
def folder(tmp_path):
  """A whole model: weights, config and a tokenizer as large as the head."""
  tiny.save(tmp_path, "llama")
  tiny.save_tokenizer(tmp_path, 32)
  return tmp_path


def read(folder):
  return safetensors.numpy.load_file(folder / WEIGHTS)


def write(folder, tensors, name=WEIGHTS):
  safetensors.numpy.save_file(tensors, folder / name)


def change(folder, file="config.json", **fields):
  path = folder / file
  old = json.loads(path.read_text()) if path.exists() else {}
  path.write_text(json.dumps(old | fields))


def split(folder, index):
  """Cuts the weights into two files."""
  tensors = read(folder)
  (folder / WEIGHTS).unlink()
  files = {}
  for i, name in enumerate(sorted(tensors)):
    file = f"model-0000{i % 2 + 1}-of-00002.safetensors"
    files.setdefault(file, {})[name] = tensors[name]
  for file, part in files.items():
    write(folder, part, file)
  if index:
    places = {name: file for file, part in files.items() for name in part}
    (folder / INDEX).write_text(json.dumps({"weight_map": places}))


def load(folder, dtype="float32", **kwargs):
  return sd.load(folder, dtype=dtype, **kwargs)


def refusal(folder, **kwargs):
  with pytest.raises(ValueError) as error:
    load(folder, **kwargs)
  return str(error.value)


@pytest.mark.parametrize("name", tiny.CONFIGS)
def test_weights_are_those_in_the_file(tmp_path, name):
  params = tiny.save(tmp_path, name)
  model = load(tmp_path)
  expected = dataclasses.replace(tiny.network(name), platform="cpu")
  assert model.network == expected
  assert model.params.keys() == params.keys()
  for path, value in params.items():
    np.testing.assert_array_equal(model.params[path], value, err_msg=path)
  assert model.tokenizer is None


@pytest.mark.parametrize("index", [True, False])
def test_weights_in_several_files(folder, index):
  expected = load(folder).logits(TOKENS)
  split(folder, index)
  np.testing.assert_array_equal(load(folder).logits(TOKENS), expected)


@pytest.mark.parametrize("stored", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_types_are_cast(folder, stored, dtype):
  tensors = read(folder)
  dtypes = {"bfloat16": ml_dtypes.bfloat16}
  cast = {k: v.astype(dtypes.get(stored, stored)) for k, v in tensors.items()}
  write(folder, cast)
  model = load(folder, dtype)
  family = model.network.config.family
  for path, value in model.params.items():
    assert value.dtype == dtype
    expected = cast[family.tensor_name(path)].astype(value.dtype)
    np.testing.assert_array_equal(value, expected)


@pytest.mark.parametrize("size", [20, 31, 32, 33, 41])
def test_the_head_is_as_wide_as_the_tokenizer(folder, size):
  expected = load(folder).logits(TOKENS)
  tiny.save_tokenizer(folder, size)
  model = load(folder)
  assert model.network.vocab_size == size == model.tokenizer.size
  assert model.params["embed.weight"].shape == (size, 16)
  logits = model.logits(TOKENS)
  assert logits.shape == (len(TOKENS), size)
  known = min(size, 32)
  np.testing.assert_allclose(
    logits[:, :known], expected[:, :known], rtol=1e-5, atol=1e-5
  )
  assert (logits[:, known:] == -1e30).all()


@pytest.mark.parametrize("size", [30, 32, 33])
@pytest.mark.parametrize("shape", [(1, 2), (2, 2), (1, 4)])
@pytest.mark.parametrize("name", ["llama-biases", "qwen3-tied-biases"])
def test_sharded_is_unsharded(tmp_path, name, shape, size):
  tiny.save(tmp_path, name)
  tiny.save_tokenizer(tmp_path, size)
  alone = load(tmp_path)
  model = load(tmp_path, mesh=sharding.make_mesh(*shape))
  np.testing.assert_allclose(
    model.logits(TOKENS), alone.logits(TOKENS), rtol=1e-4, atol=1e-4
  )
  query = model.params["layers.0.attention.query.weight"]
  assert query.addressable_shards[0].data.shape[0] == query.shape[0] // shape[1]
  embed = model.params["embed.weight"]
  assert len(embed) % shape[1] == 0
  assert len(embed.addressable_shards[0].data) == len(embed) // shape[1]


def test_eos_ids_come_from_the_first_place_that_names_any(folder):
  assert load(folder).eos_ids == (31,)  # the tokenizer's
  change(folder, eos_token_id=7)
  assert load(folder).eos_ids == (7,)
  change(folder, "generation_config.json", eos_token_id=[5, 6, 5, 99, -1, "x"])
  assert load(folder).eos_ids == (5, 6)
  change(folder, "generation_config.json", eos_token_id=8)
  assert load(folder).eos_ids == (8,)
  change(folder, "generation_config.json", eos_token_id=None)
  assert load(folder).eos_ids == (7,)


def test_the_authors_sampling_is_kept_aside(folder):
  change(
    folder, "generation_config.json", temperature=0.7, top_k=20, pad_token_id=0
  )
  model = load(folder)
  assert model.generation_config == {"temperature": 0.7, "top_k": 20}


def test_tensors_known_to_be_harmless_are_accepted(tmp_path):
  tiny.save(tmp_path, "qwen2-tied")
  tensors = read(tmp_path)
  tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
  name = "model.layers.0.self_attn.rotary_emb.inv_freq"
  tensors[name] = np.ones(2, np.float32)
  write(tmp_path, tensors)
  assert "head.weight" not in load(tmp_path).params


def test_all_faults_are_told_at_once(folder):
  tensors = read(folder)
  del tensors["model.norm.weight"]
  tensors["model.layers.1.mlp.up_proj.weight"] = np.ones((16, 24), np.float32)
  tensors["model.layers.0.mlp.extra"] = np.ones(3, np.float32)
  tensors["lm_head.weight"] = np.ones((32, 16), np.int8)
  tensors["model.layers.0.mlp.down_proj.weight"] = np.ones((0, 16), np.float32)
  write(folder, tensors)
  message = refusal(folder)
  assert "5 faults" in message
  for part in (
    "model.norm.weight: missing",
    "model.layers.1.mlp.up_proj.weight: wrong shape, expected [24, 16], got "
    "[16, 24]",
    "model.layers.0.mlp.extra: unexpected",
    "lm_head.weight: type I8 is not supported; supported: BF16, F16, F32",
    "model.layers.0.mlp.down_proj.weight: wrong shape",
  ):
    assert part in message


def test_a_long_list_of_faults_is_cut(folder):
  write(folder, {f"x{i}": np.ones(1, np.float32) for i in range(50)})
  message = refusal(folder)
  assert message.count("\n") == 21
  assert message.endswith("more")


@pytest.mark.parametrize("keep", [0, 4, 100, -1])
def test_truncated_files_are_named(folder, keep):
  path = folder / WEIGHTS
  path.write_bytes(path.read_bytes()[:keep])
  message = refusal(folder)
  assert str(path) in message
  assert "truncated" in message


def test_corrupt_files_are_named(folder):
  (folder / WEIGHTS).write_bytes(b"\xff" * 1000)
  assert str(folder / WEIGHTS) in refusal(folder)


def test_a_tensor_in_two_files_is_refused(folder):
  split(folder, index=False)
  write(
    folder, {"model.norm.weight": np.ones(16, np.float32)}, "more.safetensors"
  )
  assert "model.norm.weight is in both" in refusal(folder)


def test_missing_files_of_an_index_are_named(folder):
  split(folder, index=True)
  (folder / "model-00002-of-00002.safetensors").unlink()
  message = refusal(folder)
  assert "1 are missing: model-00002-of-00002.safetensors" in message


@pytest.mark.parametrize("name", ["../secret.safetensors", "/etc/passwd"])
def test_an_index_cannot_lead_out_of_the_folder(folder, name):
  split(folder, index=True)
  (folder / INDEX).write_text(json.dumps({"weight_map": {"a": name}}))
  assert "outside the folder" in refusal(folder)


@pytest.mark.parametrize("text", ["{}", "[]", "{", '{"weight_map": {}}'])
def test_a_broken_index_is_refused(folder, text):
  split(folder, index=True)
  (folder / INDEX).write_text(text)
  assert INDEX in refusal(folder)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt"])
def test_pickles_are_never_read(folder, name):
  (folder / WEIGHTS).rename(folder / name)
  message = refusal(folder)
  assert name in message
  assert "never read" in message
  assert "Convert them to safetensors" in message


def test_folders_that_are_no_models(folder, tmp_path):
  (folder / WEIGHTS).unlink()
  assert "no *.safetensors" in refusal(folder)
  (folder / "config.json").write_text("{")
  assert "is not JSON" in refusal(folder)
  (folder / "config.json").write_text("[1]")
  assert "expected an object" in refusal(folder)
  (folder / "config.json").unlink()
  assert "no config.json" in refusal(folder)


@pytest.mark.parametrize("method", ["fp8", "gptq"])
def test_quantised_checkpoints_are_refused(folder, method):
  change(folder, quantization_config={"quant_method": method})
  assert f"quantised ({method})" in refusal(folder)


@pytest.mark.parametrize(
  "source",
  ["./nowhere", "/no/where", "~/no-such-folder", "a/b/c", "models/", "-x"],
)
def test_paths_that_are_not_there_are_not_sought_on_the_hub(
  source, monkeypatch, tmp_path
):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr("huggingface_hub.snapshot_download", None)
  assert f"no such folder: {source}" in refusal(source)


def test_a_path_is_never_sought_on_the_hub(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr("huggingface_hub.snapshot_download", None)
  assert "no such folder" in refusal(pathlib.Path("gpt2"))


def test_a_file_is_no_model(folder):
  assert "no GGUF file; expected a model's folder" in refusal(folder / WEIGHTS)


@pytest.mark.parametrize("source", ["gpt2", "Qwen/Qwen2.5-Coder-0.5B"])
def test_hub_ids_are_downloaded_without_code_or_pickles(
  folder, source, monkeypatch, tmp_path_factory
):
  asked = {}

  def download(name, allow_patterns):
    asked.update(name=name, patterns=allow_patterns)
    return str(folder)

  monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
  monkeypatch.setattr("huggingface_hub.snapshot_download", download)
  assert load(source).name == source
  assert asked["name"] == source

  def wanted(file):
    return any(fnmatch.fnmatch(file, p) for p in asked["patterns"])

  for file in (
    "config.json",
    "model-00001-of-00002.safetensors",
    INDEX,
    "tokenizer.json",
    "chat_template.jinja",
  ):
    assert wanted(file), file
  for file in (
    "pytorch_model.bin",
    "modeling_custom.py",
    "original/consolidated.00.pth",
    "onnx/model.onnx",
    "flax_model.msgpack",
  ):
    assert not wanted(file), file


def test_a_hub_that_cannot_be_reached_is_an_error_of_the_name(monkeypatch):
  def download(name, allow_patterns):
    raise OSError("offline")

  monkeypatch.setattr("huggingface_hub.snapshot_download", download)
  message = refusal("nobody/nothing")
  assert "no folder nobody/nothing" in message
  assert "offline" in message


@pytest.mark.parametrize("dtype", ["float16", "int8", "fp32"])
def test_a_wrong_dtype_is_refused_before_anything_is_read(dtype, tmp_path):
  assert "supported: float32, bfloat16" in refusal(tmp_path, dtype=dtype)


def test_tensors_are_read_in_part(folder):
  tensors = hf.open_folder(folder)
  whole = read(folder)["lm_head.weight"]
  part = tensors.read("lm_head.weight", (slice(8, 12), slice(3, 7)), "float32")
  np.testing.assert_array_equal(part, whole[8:12, 3:7])
  part = tensors.read(
    "lm_head.weight", (slice(30, 36), slice(0, 16)), "float32"
  )
  np.testing.assert_array_equal(part[:2], whole[30:])
  assert (part[2:] == 0).all()
  part = tensors.read(
    "lm_head.weight", (slice(40, 44), slice(0, 16)), "float32"
  )
  assert part.shape == (4, 16)
  assert (part == 0).all()


def test_skeletons_are_small_and_equal(folder):
  model = load(folder)
  bare = model.skeleton()
  assert bare.params is None
  assert bare == load(folder).skeleton()
  assert hash(bare) == hash(model.skeleton())
  assert "Array" not in repr(model)


@pytest.mark.parametrize("tokens", [[], [32], [-1], [0, 99]])
def test_logits_of_foreign_tokens_are_refused(folder, tokens):
  with pytest.raises(ValueError, match=r"tokens in \[0, 32\)"):
    load(folder).logits(tokens)


def test_logits_do_not_depend_on_what_comes_later(folder):
  model = load(folder)
  whole = model.logits(TOKENS)
  np.testing.assert_array_equal(model.logits(TOKENS[:3]), whole[:3])
  assert jax.tree.leaves(model.params)[0].sharding.mesh == model.mesh
