"""Folders that are written: what is read from them is what was exported."""

import json

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

import specdec_jax as sd
from specdec_jax import sharding
from specdec_jax.loading import loader, orbax
from specdec_jax.loading.export import export
from tests import tiny

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"


@pytest.fixture
def folder(tmp_path):
  """A model that transformers reads, in bfloat16."""
  path = tmp_path / "source"
  path.mkdir()
  tiny.save(path, "llama")
  tiny.save_tokenizer(path, 32)
  (path / "generation_config.json").write_text('{"eos_token_id": [31, 7]}')
  tensors = safetensors.numpy.load_file(path / WEIGHTS)
  tensors = {k: v.astype(ml_dtypes.bfloat16) for k, v in tensors.items()}
  safetensors.numpy.save_file(tensors, path / WEIGHTS)
  return path


def convert(source, target, **kwargs):
  return export(loader.open_source(source), target, **kwargs)


def same(a, b):
  """Whether two folders hold the same model, bit for bit."""
  left, right = sd.load(a), sd.load(b)
  assert left.network == right.network
  assert left.eos_ids == right.eos_ids == (31, 7)
  assert left.tokenizer.same_as(right.tokenizer) is None
  assert left.params.keys() == right.params.keys()
  for path, value in left.params.items():
    np.testing.assert_array_equal(value, right.params[path], err_msg=path)


def test_there_and_back(folder, tmp_path):
  done = convert(folder, tmp_path / "a", form="orbax")
  tensors = safetensors.numpy.load_file(folder / WEIGHTS)
  assert done.tensors == len(tensors)
  assert done.size == sum(tensor.nbytes for tensor in tensors.values())
  assert done.dtype == "bfloat16"
  convert(tmp_path / "a", tmp_path / "b")
  same(folder, tmp_path / "a")
  same(folder, tmp_path / "b")
  back = safetensors.numpy.load_file(tmp_path / "b" / WEIGHTS)
  assert back.keys() == tensors.keys()
  for name, tensor in tensors.items():
    assert back[name].dtype == tensor.dtype
    assert back[name].tobytes() == tensor.tobytes()
  assert not list(tmp_path.glob("*partial*"))


@pytest.mark.parametrize("form", ["safetensors", "orbax"])
@pytest.mark.parametrize("name", ["gpt2", "phi3", "gemma3"])
def test_families_with_layouts_of_their_own(tmp_path, name, form):
  tiny.save(tmp_path, name)
  done = convert(tmp_path, tmp_path / "a", form=form)
  assert done.dtype == "float32"
  left = sd.load(tmp_path, dtype="float32")
  right = sd.load(tmp_path / "a", dtype="float32")
  for path, value in left.params.items():
    np.testing.assert_array_equal(value, right.params[path], err_msg=path)


@pytest.mark.parametrize("max_bytes", [1, 2000, 3000])
def test_large_models_have_several_files(folder, tmp_path, max_bytes):
  target = tmp_path / "a"
  convert(folder, target, max_shard_bytes=max_bytes)
  index = json.loads((target / INDEX).read_text())
  files = sorted(path.name for path in target.glob("*.safetensors"))
  assert len(files) > 1
  assert files[0] == f"model-00001-of-{len(files):05}.safetensors"
  assert sorted(set(index["weight_map"].values())) == files
  total = 0
  for file in files:
    tensors = safetensors.numpy.load_file(target / file)
    assert all(index["weight_map"][name] == file for name in tensors)
    size = sum(tensor.nbytes for tensor in tensors.values())
    assert size <= max_bytes or len(tensors) == 1
    total += size
  assert index["metadata"]["total_size"] == total
  same(folder, target)


def test_another_dtype(folder, tmp_path):
  assert convert(folder, tmp_path / "a", dtype="float32").dtype == "float32"
  tensors = safetensors.numpy.load_file(tmp_path / "a" / WEIGHTS)
  assert {tensor.dtype for tensor in tensors.values()} == {np.dtype("float32")}
  config = json.loads((tmp_path / "a" / "config.json").read_text())
  assert config["dtype"] == "float32"
  same(folder, tmp_path / "a")


def test_a_folder_in_use_is_left_alone(folder, tmp_path):
  with pytest.raises(ValueError, match="is in use"):
    convert(folder, folder)
  with pytest.raises(ValueError, match="is in use"):
    convert(folder, folder / WEIGHTS)
  (tmp_path / "empty").mkdir()
  convert(folder, tmp_path / "empty")
  same(folder, tmp_path / "empty")


@pytest.mark.parametrize("form", ["safetensors", "orbax"])
def test_what_was_not_finished_is_not_there(
  folder, tmp_path, form, monkeypatch
):
  def seen(*_):
    (partial,) = tmp_path.glob("*partial*")
    with pytest.raises(ValueError, match=r"no config\.json"):
      sd.load(partial)
    raise KeyboardInterrupt

  monkeypatch.setattr("specdec_jax.loading.tokenizer.Tokenizer.save", seen)
  with pytest.raises(KeyboardInterrupt):
    convert(folder, tmp_path / "a", form=form)
  assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_broken_models_are_refused_before_anything_is_written(folder, tmp_path):
  tensors = safetensors.numpy.load_file(folder / WEIGHTS)
  del tensors["model.norm.weight"]
  safetensors.numpy.save_file(tensors, folder / WEIGHTS)
  with pytest.raises(ValueError, match=r"model\.norm\.weight: missing"):
    convert(folder, tmp_path / "a")
  assert not (tmp_path / "a").exists()


@pytest.fixture
def trained(folder, tmp_path):
  """An orbax folder."""
  convert(folder, tmp_path / "trained", form="orbax")
  return tmp_path / "trained"


def test_each_device_has_its_part(trained):
  alone = sd.load(trained)
  split = sd.load(trained, mesh=sharding.make_mesh(model=2))
  for path, value in alone.params.items():
    np.testing.assert_array_equal(split.params[path], value, err_msg=path)
  query = split.params["layers.0.attention.query.weight"]
  assert len(query.addressable_shards[0].data) == len(query) // 2


def test_the_newest_step_of_a_training_is_read(folder, trained):
  from orbax.checkpoint.experimental.v1 import training

  tensors = safetensors.numpy.load_file(folder / WEIGHTS)
  path = trained / orbax.FOLDER
  path.rename(trained / "old")
  with training.Checkpointer(path) as checkpointer:
    for step in (9, 10):
      changed = tensors | {
        "model.norm.weight": np.full(16, step, ml_dtypes.bfloat16)
      }
      checkpointer.save(step, changed)
  assert (sd.load(trained).params["final_norm.scale"] == 10).all()


def refusal(folder):
  with pytest.raises(ValueError) as error:
    sd.load(folder)
  return str(error.value)


def test_folders_without_a_checkpoint(trained):
  path = trained / orbax.FOLDER
  path.rename(trained / "old")
  path.mkdir()
  assert f"cannot read the orbax checkpoint in {path}:" in refusal(trained)
  (path / "3").mkdir()
  assert f"cannot read the orbax checkpoint in {path / '3'}:" in refusal(
    trained
  )


def test_nested_arrays_are_refused(trained):
  path = trained / orbax.FOLDER
  path.rename(trained / "old")
  orbax.save(trained, {"model": {"norm": np.ones(3)}})
  assert "does not hold a flat dictionary of arrays" in refusal(trained)


def test_faults_of_arrays_are_told_at_once(trained):
  path = trained / orbax.FOLDER
  path.rename(trained / "old")
  orbax.save(
    trained,
    {"model.norm.weight": np.ones(3, "float32"), "b": np.ones(3, "int8")},
  )
  message = refusal(trained)
  assert "model.norm.weight: wrong shape, expected [16], got [3]" in message
  assert "22 faults" in message
  assert "model.embed_tokens.weight: missing" in message


def test_a_damaged_checkpoint(trained):
  for path in (trained / orbax.FOLDER).rglob("*"):
    if path.parent.name == "d":
      path.write_bytes(path.read_bytes()[:10])
  assert str(trained / orbax.FOLDER) in refusal(trained)
