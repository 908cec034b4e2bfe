"""Checkpoints that someone broke, by accident or on purpose.

Each is refused in one sentence, soon, and in little memory.
"""

import json
import os
import struct

import pytest

import specdec_jax as sd
from tests import tiny

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
EMBED = "model.embed_tokens.weight"


@pytest.fixture
def folder(tmp_path):
  tiny.save(tmp_path, "llama")
  tiny.save_tokenizer(tmp_path, 32)
  return tmp_path


def change(path, **fields):
  path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def refusal(source):
  with pytest.raises(ValueError) as error:
    sd.load(source, dtype="float32")
  message = str(error.value)
  assert len(message) < 6000
  return message


@pytest.mark.parametrize(
  "data",
  [
    b"",
    b"\0",
    b"\xff",
    b"\xef\xbb\xbf{}",
    b'{"a": ' + b"[" * 100_000,
    b'{"a": ' + b"9" * 5000 + b"}",
  ],
  ids=["empty", "nul", "not utf-8", "bom", "deep", "long number"],
)
@pytest.mark.parametrize("file", ["config.json", "generation_config.json"])
def test_files_that_are_not_json(folder, file, data):
  (folder / file).write_bytes(data)
  assert f"{folder / file} is not JSON" in refusal(folder)


@pytest.mark.parametrize("kind", ["folder", "device", "pipe", "loop"])
def test_what_is_no_file_is_not_read(folder, kind):
  path = folder / "config.json"
  path.unlink()
  make = {
    "folder": path.mkdir,
    "device": lambda: path.symlink_to("/dev/zero"),
    "pipe": lambda: os.mkfifo(path),
    "loop": lambda: path.symlink_to(path),
  }
  make[kind]()
  assert f"no config.json in {folder}" in refusal(folder)


@pytest.mark.parametrize("value", ["fp8", ["fp8"], {"bits": 4}, 1])
def test_quantised_in_an_unknown_way(folder, value):
  change(folder / "config.json", quantization_config=value)
  assert "quantised (method unknown)" in refusal(folder)


def test_layers_that_nobody_has_are_not_declared(folder):
  change(folder / "config.json", num_hidden_layers=10**9)
  message = refusal(folder)
  assert "num_hidden_layers is 1000000000, but the checkpoint has 21" in message


def test_sizes_that_nobody_has_take_no_memory(folder):
  huge = 2**31 - 2
  change(
    folder / "config.json",
    vocab_size=huge,
    hidden_size=huge,
    intermediate_size=huge,
    head_dim=huge,
  )
  assert f"{EMBED}: wrong shape, expected [{huge}, {huge}]" in refusal(folder)


def test_a_tokenizer_far_larger_than_the_embedding(folder):
  tiny.save_tokenizer(folder, 64)
  assert sd.load(folder, dtype="float32").network.vocab_size == 64
  path = folder / "tokenizer.json"
  tokenizer = json.loads(path.read_text())
  tokenizer["model"]["vocab"]["far"] = 2**32 - 2
  path.write_text(json.dumps(tokenizer))
  assert "has ids up to 4294967294, but the model knows 32" in refusal(folder)


@pytest.mark.parametrize(
  "data", [b"", b"{", b"{}", b"[]", b"\xff", b"[" * 100_000]
)
@pytest.mark.parametrize("file", ["tokenizer.json", "tokenizer_config.json"])
def test_broken_tokenizers(folder, file, data):
  if (file, data) == ("tokenizer_config.json", b"{}"):
    return  # says nothing, which is fine
  (folder / file).write_bytes(data)
  assert f"cannot read the tokenizer in {folder}" in refusal(folder)


def test_a_tokenizer_without_tokens(folder):
  path = folder / "tokenizer.json"
  tokenizer = json.loads(path.read_text()) | {"added_tokens": []}
  tokenizer["model"].update(vocab={}, unk_token="a")
  path.write_text(json.dumps(tokenizer))
  (folder / "tokenizer_config.json").write_text("{}")
  assert "its vocabulary is empty" in refusal(folder)


def relabel(folder, **fields):
  """Tells lies about a tensor in the header."""
  data = (folder / WEIGHTS).read_bytes()
  (size,) = struct.unpack("<Q", data[:8])
  header = json.loads(data[8 : 8 + size])
  header[EMBED] |= fields
  lies = json.dumps(header).encode()
  (folder / WEIGHTS).write_bytes(
    struct.pack("<Q", len(lies)) + lies + data[8 + size :]
  )


@pytest.mark.parametrize(
  "lie",
  [
    {"data_offsets": [0, 10**12]},
    {"data_offsets": [-4, 0]},
    {"data_offsets": [2**64, 0]},
    {"shape": [2**40, 2**40]},
    {"shape": [-1, 16]},
    {"shape": []},
    {"dtype": "F16"},
    {"dtype": "PICKLE"},
  ],
  ids=str,
)
def test_headers_that_lie(folder, lie):
  relabel(folder, **lie)
  assert f"{folder / WEIGHTS} is truncated, corrupt" in refusal(folder)


def test_a_type_of_the_same_size(folder):
  relabel(folder, dtype="I32")
  message = refusal(folder)
  assert "1 fault:" in message
  assert f"{EMBED}: type I32 is not supported" in message


@pytest.mark.parametrize(
  "name", ["..", "", "a\0b", "a" * 5000, 3, ["x"], None, "\ud800"]
)
def test_an_index_of_odd_names(folder, name):
  (folder / WEIGHTS).unlink()
  (folder / INDEX).write_text(json.dumps({"weight_map": {EMBED: name}}))
  message = refusal(folder)
  assert "names 1 files, of which 1 are missing" in message
  assert len(message) < 400


@pytest.mark.parametrize("source", ["", "a" * 5000, "~nobody-of-this-name/x"])
def test_folders_that_cannot_be(source):
  assert "no such folder" in refusal(source)
