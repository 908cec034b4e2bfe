"""GGUF files: what is read from them is what was written."""

import dataclasses
import sys

import numpy as np
import pytest

import specdec_jax as sd
from specdec_jax import sharding
from specdec_jax.loading import loader
from specdec_jax.loading.export import export
from specdec_jax.models.config import from_hf
from tests import tiny

gguf = pytest.importorskip("gguf")
from tests.loading import gguf_files  # noqa: E402

NAMES = (
  "llama",
  "llama-biases",
  "llama-tied",
  "llama-linear",
  "qwen2",
  "qwen2-tied",
  "qwen3",
  "gemma3",
)
# Columns of a multiple of 256, as some types need.
WIDE = tiny.CONFIGS["llama"] | {
  "num_hidden_layers": 1,
  "hidden_size": 256,
  "intermediate_size": 256,
  "head_dim": 64,
}


def save(path, name, **kwargs):
  """Writes one of the tiny models. Returns its weights."""
  params = tiny.random_params(tiny.network(name), 0)
  tensors = tiny.tensors(tiny.network(name), params)
  gguf_files.write(path, tiny.CONFIGS[name], tensors, **kwargs)
  return params


@pytest.fixture
def file(tmp_path):
  return tmp_path / "model.gguf"


def load(path, dtype="float32", **kwargs):
  return sd.load(path, dtype=dtype, **kwargs)


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_those_of_the_model(file, name):
  params = save(file, name, header=gguf_files.add_words(32))
  model = load(file)
  expected = dataclasses.replace(tiny.network(name), platform="cpu")
  if name == "gemma3":
    scalar = float(tiny.CONFIGS[name]["head_dim"])
    config = dataclasses.replace(expected.config, query_scalar=scalar)
    expected = dataclasses.replace(expected, config=config)
  assert model.network == expected
  assert model.params.keys() == params.keys()
  for path, value in params.items():
    # 1 was added to Gemma's norms and is taken off again.
    atol = 1e-7 if name == "gemma3" and "scale" in path else 0
    np.testing.assert_allclose(
      model.params[path], value, rtol=0, atol=atol, err_msg=path
    )
  assert model.eos_ids == (31,)
  assert model.tokenizer.size == 32


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q4_0", "Q5_0", "Q8_0"])
def test_types_that_gguf_writes(file, kind):
  check_type(file, gguf.GGMLQuantizationType[kind], gguf.quants.quantize)


@pytest.mark.parametrize("kind", ["Q4_K", "Q5_K", "Q6_K"])
def test_types_of_super_blocks(file, kind):
  rng = np.random.default_rng(1)

  def quantise(tensor, type_):
    return gguf_files.random_bytes(rng, *tensor.shape, type_)

  check_type(file, gguf.GGMLQuantizationType[kind], quantise)


def check_type(file, type_, quantise):
  network = tiny.TransformerNetwork(from_hf(WIDE), "float32")
  tensors = tiny.tensors(network, tiny.random_params(network, 0))
  matrices = [name for name, tensor in tensors.items() if tensor.ndim == 2]
  for name in matrices:
    tensors[name] = quantise(tensors[name], type_)
  types = dict.fromkeys(matrices, type_)
  gguf_files.write(file, WIDE, tensors, types=types)
  model = load(file)
  written = gguf_files.read_all(file)
  for path, value in model.params.items():
    name = network.config.family.tensor_name(path)
    expected = written[gguf_files.gguf_name(name, "llama")]
    value = np.asarray(value)
    if "q_proj" in name or "k_proj" in name:
      value = gguf_files.interleaved(value, len(value) // 64)
    np.testing.assert_array_equal(value, expected, err_msg=name)
  rounded = load(file, "bfloat16").params["layers.0.mlp.up.weight"]
  np.testing.assert_array_equal(
    rounded, model.params["layers.0.mlp.up.weight"].astype("bfloat16")
  )


def test_large_tensors_are_read_in_blocks_of_rows(file, monkeypatch):
  save(file, "llama")
  whole = load(file).params
  monkeypatch.setattr("specdec_jax.loading.gguf_file._CHUNK", 48)
  for path, value in load(file).params.items():
    np.testing.assert_array_equal(value, whole[path], err_msg=path)


def test_devices_read_their_own_part(file):
  params = save(file, "llama")
  model = load(file, mesh=sharding.make_mesh(model=2))
  for path, value in params.items():
    np.testing.assert_array_equal(model.params[path], value, err_msg=path)


def test_rows_that_only_fill_up_are_no_tokens(file):
  def header(writer):
    gguf_files.add_words(29)(writer)
    tokens = writer.kv_data[-1]["tokenizer.ggml.tokens"].value
    types = writer.kv_data[-1]["tokenizer.ggml.token_type"].value
    tokens += [f"[PAD{i}]" for i in range(29, 32)]
    types += [5] * 3

  save(file, "llama", header=header)
  model = load(file)
  assert model.network.vocab_size == model.tokenizer.size == 29


def rope_factors(factor, high=4.0):
  """As llama.cpp's converter derives them from config.json."""
  factors = []
  for i in range(8):
    wave = 2 * np.pi * 500_000.0 ** (i / 8)
    if wave < 8192 / high:
      factors.append(1.0)
    elif wave > 8192:
      factors.append(factor)
    else:
      smooth = (8192 / wave - 1.0) / (high - 1.0)
      factors.append(1 / ((1 - smooth) / factor + smooth))
  return np.array(factors, np.float32)


def save_llama3(path, factors):
  fields = tiny.CONFIGS["llama"] | {
    "head_dim": 16,
    "rope_parameters": {"rope_theta": 500_000.0},
  }
  network = tiny.TransformerNetwork(from_hf(fields), "float32")
  tensors = tiny.tensors(network, tiny.random_params(network, 0))
  gguf_files.write(
    path, fields, tensors | {"rope_freqs.weight": factors.astype(np.float32)}
  )


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_the_scaling_of_llama_3_is_derived(file, factor):
  save_llama3(file, rope_factors(factor))
  assert loader.open_source(file).fields["rope_scaling"] == {
    "rope_type": "llama3",
    "factor": factor,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
  }
  assert load(file).network.config.rope_scaling.factor == factor


@pytest.mark.parametrize(
  "factors", [rope_factors(8.0, high=2.0), np.zeros(8), np.full(8, np.nan)]
)
def test_other_factors_are_refused(file, factors):
  save_llama3(file, factors)
  with pytest.raises(ValueError, match="are not those of Llama 3"):
    load(file)


def test_without_the_package_it_says_how_to_install_it(file, monkeypatch):
  save(file, "llama")
  monkeypatch.setitem(sys.modules, "gguf", None)
  with pytest.raises(ValueError, match=r"pip install 'specdec-jax\[gguf\]'"):
    load(file)


def test_faults_of_tensors_are_told_at_once(file):
  network = tiny.network("llama")
  tensors = tiny.tensors(network, tiny.random_params(network, 0))
  del tensors["model.norm.weight"]
  tensors["model.layers.0.mlp.up_proj.weight"] = np.ones((3, 5), np.float32)
  tensors["model.layers.0.mlp.down_proj.weight"] = np.ones((16, 24), np.int32)
  tensors["extra"] = np.ones(3, np.float32)
  gguf_files.write(file, tiny.CONFIGS["llama"], tensors)
  with pytest.raises(ValueError) as error:
    load(file)
  for fault in (
    "4 faults",
    "model.norm.weight: missing",
    "model.layers.0.mlp.up_proj.weight: wrong shape, expected [24, 16]",
    "model.layers.0.mlp.down_proj.weight: type I32 is not supported",
    "extra: unexpected",
  ):
    assert fault in str(error.value)


@pytest.mark.parametrize("name", ["llama-biases", "qwen2", "qwen3", "gemma3"])
def test_transformers_reads_what_is_converted(file, name, tmp_path):
  torch = pytest.importorskip("torch")
  transformers = pytest.importorskip("transformers")
  save(file, name, header=gguf_files.add_words(32))
  folder = tmp_path / "folder"
  export(loader.open_source(file), folder)
  model, ids = load(folder), list(range(3, 25, 2))
  theirs = transformers.AutoModelForCausalLM.from_pretrained(
    folder, dtype=torch.float32
  ).eval()
  with torch.no_grad():
    expected = theirs(torch.tensor([ids])).logits[0].numpy()
  np.testing.assert_allclose(model.logits(ids), expected, atol=1e-4)
  assert theirs.generation_config.eos_token_id in (31, [31])
  tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
  assert tokenizer.get_vocab()["<|im_end|>"] == tokenizer.eos_token_id == 31
