"""Tokenizers of GGUF files; those of real models are in tests/real."""

import pytest

from specdec_jax.loading import gguf_tokenizer
from specdec_jax.loading.gguf_file import GgufFile
from specdec_jax.loading.gguf_tokenizer import ends

gguf = pytest.importorskip("gguf")

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
WORDS = ["1", "2", "3", "4", "Ġ", "a", "é", "12", "123", "1234", "Ġa"]
MERGES = ["1 2", "12 3", "123 4", "Ġ a"]


def read(file):
  return gguf_tokenizer.read(file, "model.gguf")


@pytest.fixture
def make(tmp_path):
  """Writes a file with a tokenizer; returns it, open."""

  def make(model, tokens, types, **values):
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(model)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    for name, value in values.items():
      key = f"tokenizer.ggml.{name}"
      if isinstance(value, bool):
        writer.add_bool(key, value)
      elif isinstance(value, int):
        writer.add_uint32(key, value)
      elif isinstance(value, str):
        writer.add_string(key, value)
      else:
        writer.add_array(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return GgufFile(path)

  return make


@pytest.fixture
def byte_level(make):
  def byte_level(pre, tokens=(), types=(), **values):
    types = [NORMAL] * len(WORDS) + list(types)
    tokens = WORDS + list(tokens)
    return make("gpt2", tokens, types, pre=pre, merges=MERGES, **values)

  return byte_level


@pytest.mark.parametrize(
  "pre, pieces",
  [
    ("gpt-2", ["1234", "Ġa", "1234"]),
    ("qwen2", ["1", "2", "3", "4", "Ġa", "1", "2", "3", "4"]),
    ("llama-bpe", ["123", "4", "Ġa", "123", "4"]),
    ("deepseek-coder", ["1", "2", "3", "4", "Ġa", "1", "2", "3", "4"]),
  ],
)
def test_text_is_cut_as_the_name_says(byte_level, pre, pieces):
  tokenizer = read(byte_level(pre))
  ids = tokenizer.encode("1234 a1234")
  assert ids == [WORDS.index(piece) for piece in pieces]
  assert tokenizer.decode(ids) == "1234 a1234"


def test_llama_3_takes_a_word_that_is_a_token_as_it_is(byte_level):
  # No merge makes it.
  words = ["aa"], [NORMAL]
  assert read(byte_level("llama-bpe", *words)).encode("aa") == [len(WORDS)]
  assert read(byte_level("gpt-2", *words)).encode("aa") == [5, 5]


@pytest.mark.parametrize("pre, pieces", [("qwen2", ["Ã", "©"]), ("gpt-2", [])])
def test_qwen_composes_characters(byte_level, pre, pieces):
  tokens = [*WORDS, "Ã", "©"]
  tokenizer = read(byte_level(pre, ["Ã", "©"], [NORMAL] * 2))
  ids = tokenizer.encode("e\N{COMBINING ACUTE ACCENT}")
  assert ids == [tokens.index(piece) for piece in pieces]


def test_special_and_user_defined_tokens(byte_level):
  file = byte_level(
    "gpt-2",
    ["<tool>", "<|im_end|>"],
    [USER_DEFINED, CONTROL],
    eos_token_id=len(WORDS) + 1,
  )
  tokenizer = read(file)
  ids = tokenizer.encode("a<tool>12<|im_end|>")
  assert ids == [5, len(WORDS), 7, len(WORDS) + 1]
  assert tokenizer.decode(ids) == "a<tool>12"
  assert tokenizer.eos_ids == (len(WORDS) + 1,)
  assert tokenizer.special_ids == {len(WORDS) + 1}


@pytest.mark.parametrize(
  "pre, values, begins",
  [
    ("gpt-2", {}, False),
    ("gpt-2", {"add_bos_token": True}, True),
    ("llama-bpe", {}, True),
    ("llama-bpe", {"add_bos_token": False}, False),
  ],
)
def test_a_text_begins_with_a_token_where_the_model_wants_it(
  byte_level, pre, values, begins
):
  bos = len(WORDS)
  tokenizer = read(
    byte_level(pre, ["<s>"], [CONTROL], bos_token_id=bos, **values)
  )
  assert tokenizer.encode("a") == [bos, 5][not begins :]


# Ids are not in the order of scores: a pair of a large score is joined first.
PIECES = ["<unk>", "<s>", "▁", "a", "b", "c", "bc", "ab", "▁a", "▁▁", "\n\n"]
TYPES = [UNKNOWN, CONTROL] + [NORMAL] * 7 + [USER_DEFINED] * 2
SCORES = [0.0, 0.0, -9.0, -9.0, -9.0, -9.0, -3.0, -1.0, -2.0, -1000.0, -1000.0]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


@pytest.fixture
def sentence_piece(make):
  def sentence_piece(**values):
    # User-defined tokens have spaces, as the converter writes them.
    tokens = [*PIECES, *BYTES]
    tokens[9] = "  "
    values = {"scores": SCORES + [0.0] * 256, "unknown_token_id": 0} | values
    values = {"bos_token_id": 1} | values
    return make("llama", tokens, TYPES + [BYTE] * 256, **values)

  return sentence_piece


@pytest.mark.parametrize(
  "text, pieces",
  [
    ("abc", ["ab", "c"]),
    (" abc", ["▁", "ab", "c"]),
    ("   a", ["▁▁", "▁a"]),
    ("  a", ["▁▁", "a"]),  # tokens of users come first
    ("a\n\nb", ["a", "\n\n", "b"]),
    ("é", ["<0xC3>", "<0xA9>"]),
  ],
)
def test_pieces_are_joined_by_score(sentence_piece, text, pieces):
  tokenizer = read(sentence_piece(add_space_prefix=False))
  ids = tokenizer.encode(text)
  assert ids == [1] + [(PIECES + BYTES).index(piece) for piece in pieces]
  assert tokenizer.decode(ids) == text


def test_a_space_may_stand_before_a_text(sentence_piece):
  tokenizer = read(sentence_piece())
  assert tokenizer.encode("c") == [1, 2, 5]
  assert tokenizer.decode([1, 2, 5]) == "c"


def test_the_ends_of_a_text(make):
  tokens = ["<end_of_turn>", "a", "<|eot_id|>", "<|im_end|>", "</s>", "x"]
  types = [CONTROL, NORMAL, CONTROL, NORMAL, CONTROL, CONTROL]
  file = make("gpt2", tokens, types, eos_token_id=4, eot_token_id=5)
  assert ends(file) == [4, 5, 0, 2]
  assert ends(make("gpt2", tokens, types, eos_token_id=99)) == [0, 2]


def test_a_file_without_tokens_has_no_tokenizer(tmp_path):
  path = tmp_path / "model.gguf"
  writer = gguf.GGUFWriter(path, "llama")
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.close()
  assert read(GgufFile(path)) is None


@pytest.mark.parametrize(
  "model, values, reason",
  [
    ("gpt2", {"pre": "new"}, "pre-tokenizer 'new' is not known; known: gpt-2"),
    ("gpt2", {}, "pre-tokenizer None is not known"),
    ("bert", {}, "kind 'bert' is not supported; supported: gpt2, llama"),
    ("gpt2", {"pre": "gpt-2", "merges": ["a c"]}, "out of vocabulary"),
    ("gpt2", {"pre": "gpt-2", "merges": ["ab"]}, ""),
    ("gpt2", {"pre": "gpt-2", "scores": [1.0]}, "3 tokens, but 3 types and 1"),
    ("gpt2", {"pre": "gpt-2", "bos_token_id": 7}, "out of range"),
    ("gpt2", {"pre": 3}, "pre is of type int, expected str"),
    ("llama", {"tokens": ["a", "b", "a"]}, "two of its tokens are the same"),
    ("llama", {"tokens": ["a", "b", "c" * 2000]}, "more than 1000 characters"),
  ],
)
def test_what_is_broken_or_unknown_is_refused(make, model, values, reason):
  tokens = values.pop("tokens", ["a", "b", "<s>"])
  file = make(model, tokens, [NORMAL] * 3, **values)
  with pytest.raises(ValueError) as error:
    read(file)
  assert "cannot read the tokenizer in model.gguf: " in str(error.value)
  assert reason in str(error.value)
