"""GGUF files that someone broke, by accident or on purpose.

Each is refused in one sentence, soon, and in little memory.
"""

import struct
import tracemalloc

import numpy as np
import pytest

from specdec_jax.loading import loader
from specdec_jax.models.config import from_hf
from specdec_jax.models.transformer import TransformerNetwork
from tests import tiny

gguf = pytest.importorskip("gguf")
from tests.loading import gguf_files  # noqa: E402


@pytest.fixture
def file(tmp_path):
  path = tmp_path / "model.gguf"
  save(path)
  return path


def save(path, **writing):
  network = tiny.network("llama")
  tensors = tiny.tensors(network, tiny.random_params(network, 0))
  gguf_files.write(
    path,
    tiny.CONFIGS["llama"],
    tensors,
    header=gguf_files.add_words(32),
    **writing,
  )


def look(path):
  """All that is read before the weights."""
  source = loader.open_source(path)
  config = from_hf(source.fields)
  loader.check(source.weights, TransformerNetwork(config), config)
  source.read_tokenizer()


def refusal(path):
  tracemalloc.start()
  try:
    with pytest.raises(ValueError) as error:
      look(path)
    assert tracemalloc.get_traced_memory()[1] < 20e6
  finally:
    tracemalloc.stop()
  return str(error.value)


def patch(path, old, new):
  data = path.read_bytes()
  assert data.count(old) == 1
  path.write_bytes(data.replace(old, new))


def test_the_file_is_fine_before(file):
  look(file)


@pytest.mark.parametrize("share", np.linspace(0, 0.999, 40))
def test_truncated(file, share):
  data = file.read_bytes()
  file.write_bytes(data[: int(share * len(data))])
  assert str(file) in refusal(file)


@pytest.mark.parametrize("at", [8, 16], ids=["tensors", "pairs"])
@pytest.mark.parametrize("count", [10**6, 2**40, 2**64 - 1])
def test_counts_that_nobody_has(file, at, count):
  data = bytearray(file.read_bytes())
  data[at : at + 8] = struct.pack("<Q", count)
  file.write_bytes(data)
  assert "truncated or corrupt" in refusal(file)


@pytest.mark.parametrize("length", [2**31, 2**62, 2**64 - 1])
def test_lengths_that_nobody_has(file, length):
  key = b"tokenizer.ggml.tokens"
  sizes = struct.pack("<IIQ", 9, 8, 32)
  patch(file, key + sizes, key + struct.pack("<IIQ", 9, 8, length))
  assert "truncated or corrupt" in refusal(file)
  save(file)
  patch(file, struct.pack("<Q", 21) + key, struct.pack("<Q", length) + key)
  assert "truncated or corrupt" in refusal(file)


@pytest.mark.parametrize("size", [0, 2**31, 2**63])
def test_shapes_that_nobody_has(file, size):
  name = b"output_norm.weight"
  patch(
    file, name + struct.pack("<IQ", 1, 16), name + struct.pack("<IQ", 1, size)
  )
  message = refusal(file)
  assert "output_norm.weight" in message


def retype(path, kind):
  name = b"output_norm.weight" + struct.pack("<IQ", 1, 16)
  patch(path, name + struct.pack("<I", 0), name + struct.pack("<I", kind))


@pytest.mark.parametrize(
  "kind, name", [(26, "I32"), (99, "99"), (2**32 - 1, "")]
)
def test_types_that_are_not_supported(file, kind, name):
  retype(file, kind)
  message = refusal(file)
  assert "1 fault" in message
  assert f"model.norm.weight: type {name}" in message
  assert "supported: BF16, F16, F32, Q4_0" in message


def test_blocks_that_do_not_fit(file):
  retype(file, gguf.GGMLQuantizationType.Q4_K)
  assert "rows of a multiple of 256 numbers" in refusal(file)


@pytest.mark.parametrize(
  "data", [b"", b"GGU", b"PK\3\4" * 100, b"GGUF", b"GGUF" + b"\3" * 200]
)
def test_what_is_no_gguf_file(file, data):
  file.write_bytes(data)
  assert str(file) in refusal(file)


@pytest.mark.parametrize("version, reason", [(1, "1"), (4, "4"), (0, "0")])
def test_other_versions(file, version, reason):
  data = bytearray(file.read_bytes())
  data[4:8] = struct.pack("<I", version)
  file.write_bytes(data)
  assert f"GGUF version {reason} is not supported" in refusal(file)


def test_big_endian(file):
  save(file, endianess=gguf.GGUFEndian.BIG)
  assert "big-endian" in refusal(file)


def test_architectures_that_are_not_supported(file):
  patch(file, struct.pack("<Q", 5) + b"llama", struct.pack("<Q", 5) + b"mamba")
  message = refusal(file)
  assert "architecture 'mamba' is not supported" in message
  assert "supported: gemma3, llama, qwen2, qwen3" in message


def test_what_the_header_does_not_say(file):
  for key in (b"block_count", b"context_length"):
    patch(file, b"llama." + key, b"hello." + key)
  message = refusal(file)
  assert "does not say num_hidden_layers, max_position_embeddings" in message


def test_a_part_of_a_model(file):
  network = tiny.network("llama")
  tensors = tiny.tensors(network, tiny.random_params(network, 0))
  gguf_files.write(
    file,
    tiny.CONFIGS["llama"],
    tensors,
    header=lambda writer: writer.add_uint16("split.count", 3),
  )
  assert "one of 3 parts of a model; join them" in refusal(file)


def test_bytes_at_random(file):
  """Whatever is wrong, it ends with a sentence."""
  data = file.read_bytes()
  begin = data.index(b"blk.0.attn_norm.weight")
  rng = np.random.default_rng(0)
  refused = 0
  for _ in range(400):
    broken = bytearray(data)
    for at in rng.integers(0, begin + 1000, rng.integers(1, 4)):
      broken[at] = rng.choice([0, 1, 9, 64, 255, rng.integers(256)])
    file.write_bytes(broken)
    try:
      look(file)
    except ValueError:
      refused += 1
  assert refused > 200
