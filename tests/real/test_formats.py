"""GGUF files of real models: weights, tokenizers, text.

The folders of the pair hold the numbers of its GGUF files, rounded to
bfloat16: read in bfloat16 both are the same, bit for bit. In float32 a GGUF
file has more digits, so it is converted to bfloat16 first.
"""

import json
import os
import pathlib

import numpy as np
import pytest

import specdec_jax as sd
from specdec_jax.cli import main
from specdec_jax.loading import loader
from tests.real import make_gemma_golden

pytestmark = pytest.mark.real

NAMES = ("qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b")
GEMMA = "gemma-3-270m"
ODD_TEXTS = (
  "",
  "  \n\n\t a   b\r\n c " + " " * 40 + "d",
  "ünïcödé 你好 🙂👩‍👩‍👧 e\N{COMBINING ACUTE ACCENT} \N{NO-BREAK SPACE}x",
  "<|im_start|>user\nhi<|im_end|><tool_call>x</tool_call><|fim_prefix|>",
  "I'LL don't 12345 [PAD151665] \0\1\N{REPLACEMENT CHARACTER}",
)


def folder(name: str) -> pathlib.Path:
  return pathlib.Path(os.environ["SPECDEC_MODELS"]) / name


def gguf(name: str) -> pathlib.Path:
  return folder("gguf") / f"{name}.gguf"


@pytest.mark.parametrize("name", NAMES)
def test_weights_of_both_forms_are_equal(name):
  ours = loader.open_source(gguf(name)).weights
  theirs = loader.open_source(folder(name)).weights
  assert ours.tensors.keys() == theirs.tensors.keys()
  for tensor, info in theirs.tensors.items():
    whole = tuple(slice(0, size) for size in info.shape)
    np.testing.assert_array_equal(
      ours.read(tensor, whole, "bfloat16").view(np.uint16),
      theirs.read(tensor, whole, "bfloat16").view(np.uint16),
      err_msg=tensor,
    )


@pytest.mark.parametrize("name", NAMES)
def test_tokenizers_of_both_forms_are_equal(name, humaneval):
  source = loader.open_source(gguf(name))
  theirs = loader.open_source(folder(name))
  tokenizer, other = source.read_tokenizer(), theirs.read_tokenizer()
  assert tokenizer.same_as(other) is None
  assert tokenizer.special_ids == other.special_ids
  ends = source.generation["eos_token_id"]
  assert ends == theirs.generation["eos_token_id"]
  for text in (*humaneval, *ODD_TEXTS):
    ids = other.encode(text)
    assert tokenizer.encode(text) == ids
    assert tokenizer.decode(ids) == other.decode(ids)
  chat = [{"role": "user", "content": "Sort a list."}]
  expected = other.apply_chat_template(chat)
  assert tokenizer.apply_chat_template(chat) == expected


@pytest.mark.parametrize("name", NAMES)
def test_text_of_both_forms_is_equal(name, humaneval, tmp_path, capsys):
  target = tmp_path / name
  argv = [f"--source={gguf(name)}", f"--output={target}"]
  assert main.main(["convert", *argv, "--max_shard_size=500MB"]) == 0
  tensors = len(loader.open_source(folder(name)).weights.tensors)
  said = capsys.readouterr().out
  assert f": {tensors} tensors, " in said and " MB in bfloat16" in said
  assert len(list(target.glob("*.safetensors"))) >= 3
  found = [
    sd.SpeculativeDecoder(sd.load(source, dtype="float32")).generate(
      humaneval[:2], max_new_tokens=32
    )
    for source in (target, folder(name))
  ]
  assert found[0].tokens == found[1].tokens
  assert found[0].texts == found[1].texts


@pytest.fixture(scope="module")
def gemma():
  return sd.load(gguf(GEMMA), dtype="float32")


@pytest.mark.parametrize("i", range(len(make_gemma_golden.TEXTS)))
def test_gemma_equals_transformers(gemma, i):
  golden = np.load(make_gemma_golden.GOLDEN)
  ids = gemma.tokenizer.encode(make_gemma_golden.TEXTS[i])
  assert ids == golden[f"ids{i}"].tolist()
  logits_TV = gemma.logits(ids)[-8:]
  expected = golden[f"logits{i}"]
  np.testing.assert_allclose(
    logits_TV[:, :: make_gemma_golden.STRIDE],
    expected,
    rtol=0,
    atol=2e-4 * np.abs(expected).max(),
  )
  np.testing.assert_array_equal(logits_TV.argmax(-1), golden[f"best{i}"])


def test_gemma_drafts_for_itself(gemma):
  prompts = [make_gemma_golden.TEXTS[0], "Once upon a time, there was a"]
  plain = sd.SpeculativeDecoder(gemma).generate(prompts, max_new_tokens=48)
  decoder = sd.SpeculativeDecoder(gemma, sd.DraftModel(gemma, 4))
  found = decoder.generate(prompts, max_new_tokens=48)
  assert found.tokens == plain.tokens
  assert found.stats.acceptance_rate == 1.0
  assert "Rome" in found.texts[0]


def test_the_command_reads_gguf(capsys):
  argv = ["--drafter=lookup", "--max_new_tokens=24", "--json"]
  prompt = f"--prompt={make_gemma_golden.TEXTS[0]}"
  assert main.main(["generate", f"--target={gguf(GEMMA)}", prompt, *argv]) == 0
  assert "Rome" in json.loads(capsys.readouterr().out)["text"]
