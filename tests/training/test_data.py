"""Reading, packing and ordering texts."""

import json

import numpy as np
import pytest

from specdec_jax.training import data
from specdec_jax.training.data import PackedTexts, hold_out, read_texts

EOS = 0


class Letters:
  """A tokenizer whose tokens are letters."""

  def encode(self, text):
    return [ord(letter) for letter in text]


def _packed(texts, length):
  return PackedTexts.of(texts, Letters(), EOS, length, "data")


def test_each_token_is_predicted_once_and_documents_end():
  texts = ["abc", "", "defgh", "i"]
  packed = _packed(texts, 3)
  stream = [*map(ord, "abc"), EOS, EOS, *map(ord, "defgh"), EOS, ord("i"), EOS]
  assert packed.row_NT.shape == (4, 4)
  assert packed.row_NT[:, 1:].reshape(-1).tolist() == stream[1:13]
  assert packed.row_NT[:, :-1].reshape(-1).tolist() == stream[:12]


def test_a_rest_that_fills_no_row_is_left_out():
  for count in range(5, 9):  # of tokens, and one EOS
    assert len(_packed(["a" * count], 4).row_NT) == 1 + (count == 8)


def test_bytes_per_token_counts_utf8_and_ends():
  assert _packed(["aé", "→b"], 2).bytes_per_token == (3 + 4) / (3 + 3)


@pytest.mark.parametrize("texts, length", [(["ab"], 3), (["", ""], 2)])
def test_too_few_tokens_are_refused(texts, length):
  with pytest.raises(ValueError, match=rf"^data: expected {length + 1} tokens"):
    _packed(texts, length)


@pytest.mark.parametrize("length", [0, -1])
def test_rows_have_a_length(length):
  with pytest.raises(
    ValueError, match=r"^sequence_length: expected an integer"
  ):
    _packed(["abc"], length)


ROWS = PackedTexts(np.arange(10)[:, None], 1.0)


def test_the_order_is_a_function_of_seed_and_step():
  one, other = (ROWS.batch(7, 4, seed=3) for _ in range(2))
  np.testing.assert_array_equal(one, other)
  assert (ROWS.batch(7, 4, seed=4) != one).any()
  assert (ROWS.batch(8, 4, seed=3) != one).any()


@pytest.mark.parametrize("size", [2, 3, 4, 10, 25])
def test_each_epoch_visits_each_row_once_in_its_own_order(size):
  steps = [ROWS.batch(step, size, seed=0).ravel() for step in range(50 // size)]
  epochs = np.concatenate(steps)[:30].reshape(3, 10)
  assert (np.sort(epochs) == np.arange(10)).all()
  assert len({tuple(epoch) for epoch in epochs.tolist()}) == 3


def test_folders_are_read_in_the_order_of_names(tmp_path):
  (tmp_path / "b").mkdir()
  (tmp_path / "b" / "c.py").write_text("third")
  (tmp_path / "c.txt").write_text("fourth")
  (tmp_path / "a.jsonl").write_text('{"text": "first"}\n\n{"text": "second"}')
  (tmp_path / "d.bin").write_bytes(b"\xff")
  expected = ["first", "second", "third", "fourth"]
  assert read_texts([str(tmp_path)]) == expected
  assert read_texts([str(tmp_path / "c.txt"), str(tmp_path / "a.jsonl")]) == [
    "fourth",
    "first",
    "second",
  ]


def test_separators_of_lines_in_a_string_end_no_line(tmp_path):
  text = "a\u2028b\x85c"
  path = tmp_path / "a.jsonl"
  path.write_text(json.dumps({"text": text}, ensure_ascii=False) + "\r\n")
  assert read_texts([str(path)]) == [text]


@pytest.mark.parametrize(
  "line, reason",
  [
    ('{"text": ', "is not JSON"),
    ("[" * 100_000, "is not JSON"),
    (r'{"text": "a\ud800b"}', "has half a surrogate pair"),
    ('"text"', 'expected an object with a field "text"'),
    ('{"texts": "a"}', 'expected an object with a field "text"'),
    ('{"text": 1}', 'expected an object with a field "text"'),
  ],
)
def test_broken_lines_are_named(tmp_path, line, reason):
  path = tmp_path / "a.jsonl"
  path.write_text('{"text": "a"}\n\n' + line)
  with pytest.raises(ValueError, match=r"a\.jsonl, line 3") as error:
    read_texts([str(tmp_path)])
  assert reason in str(error.value)


def test_what_cannot_be_read_is_named(tmp_path):
  with pytest.raises(ValueError, match=r"no data in .*: expected \.jsonl"):
    read_texts([str(tmp_path)])
  with pytest.raises(ValueError, match=r"no such file or folder: .*nowhere"):
    read_texts([str(tmp_path / "nowhere")])
  (tmp_path / "a.py").write_text("")
  with pytest.raises(ValueError, match="no text in"):
    read_texts([str(tmp_path)])
  (tmp_path / "b.py").write_bytes(b"\xff")
  with pytest.raises(ValueError, match=r"b\.py is not UTF-8"):
    read_texts([str(tmp_path)])


@pytest.mark.parametrize("count, held", [(2, [1]), (49, [48]), (120, [49, 99])])
def test_every_fiftieth_is_held_out(count, held):
  texts = [str(i) for i in range(count)]
  kept, held_out = hold_out(texts)
  assert held_out == [str(i) for i in held]
  assert sorted(kept + held_out) == sorted(texts)


def test_one_document_cannot_be_held_out():
  with pytest.raises(ValueError, match="expected several documents"):
    hold_out(["a"])


def test_the_endings_are_those_of_the_docstring():
  assert all(ending in data.read_texts.__doc__ for ending in data._ENDINGS)
