"""The tokenizer of the pycode pair, as it is committed."""

import random
from pathlib import Path

import pytest

from specdec_jax.loading.tokenizer import Tokenizer

FOLDER = Path(__file__).parents[2] / "checkpoints" / "pycode"
END = "<|endoftext|>"


@pytest.fixture(scope="module")
def tokenizer():
  return Tokenizer.from_folder(FOLDER / "tokenizer")


def texts():
  yield from ["", " ", "\n", "\r\n\t x", "    indented\n", "a \n \n b", END]
  yield from ["naïve 日本語 🙂\u200d🙂 e\u0301", "\x00\x7f\u0085\u2028\ufeff"]
  for path in sorted(FOLDER.glob("*.py")):
    yield path.read_text(encoding="utf-8")
  draw = random.Random(0)
  for _ in range(50):
    points = [draw.choice([10, 32, draw.randrange(0xD800)]) for _ in range(80)]
    yield "".join(map(chr, points))


def test_text_comes_back(tokenizer):
  for text in texts():
    ids = tokenizer.encode(text)
    if END in text:
      assert 0 in ids
      continue
    written = b"".join(tokenizer.token_bytes[i] for i in ids)
    assert written == text.encode()
    assert tokenizer.decode(ids) == text


def test_the_end_is_the_only_special_token(tokenizer):
  assert tokenizer.size == 6144
  assert tokenizer.special_ids == {0}
  assert tokenizer.eos_ids == (0,)
  assert tokenizer.encode("") == []
  assert tokenizer.encode(END) == [0]
  inner = tokenizer._tokenizer
  assert (inner.bos_token, inner.eos_token, inner.pad_token) == (END,) * 3
  assert inner.chat_template is None


def test_every_byte_has_a_token(tokenizer):
  assert {bytes([byte]) for byte in range(256)} <= set(tokenizer.token_bytes)


def test_a_line_end_and_its_indentation_are_one_token(tokenizer):
  for spaces in range(0, 25, 4):
    assert len(tokenizer.encode("\n" + " " * spaces)) == 1


def test_digits_are_apart(tokenizer):
  ids = tokenizer.encode("x1 = 2024")
  assert [tokenizer.decode([i]) for i in ids[-4:]] == ["2", "0", "2", "4"]
