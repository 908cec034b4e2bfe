"""The tokenizer: streaming, templates, and what makes two the same."""

import contextlib
import json
import random

import pytest
import tokenizers

from specdec_jax.loading.tokenizer import Tokenizer
from tests import tiny

TEXTS = [
  "",
  "a",
  "def f(x):\n    return x  # twice  spaced",
  "naïve café — 日本語, emoji 👩‍👩‍👧 and 🇨🇭; tab\tend ",
  " leading and trailing \n\n",
  "\N{REPLACEMENT CHARACTER}x\N{REPLACEMENT CHARACTER}",
]


def _save(folder, tokenizer, **config):
  tokenizer.add_special_tokens([tiny.EOS])
  tokenizer.save(str(folder / "tokenizer.json"))
  fields = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": tiny.EOS}
  (folder / "tokenizer_config.json").write_text(json.dumps(fields | config))
  return Tokenizer.from_folder(folder)


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory):
  """Like Qwen's and Llama 3's: bytes, and some merges of them."""
  tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
  tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(
    add_prefix_space=False
  )
  tokenizer.decoder = tokenizers.decoders.ByteLevel()
  trainer = tokenizers.trainers.BpeTrainer(
    vocab_size=300,
    initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    show_progress=False,
  )
  tokenizer.train_from_iterator(TEXTS * 3, trainer)
  return _save(tmp_path_factory.mktemp("byte_level"), tokenizer)


@pytest.fixture(scope="module")
def byte_fallback(tmp_path_factory):
  """Like Llama 2's: pieces with spaces, and bytes for all else."""
  pieces = ["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256))]
  pieces += ["▁", "▁a", "e", "n", "d", "a", "f", "x", "(", ")", ":", "▁the"]
  vocab = {piece: i for i, piece in enumerate(pieces)}
  tokenizer = tokenizers.Tokenizer(
    tokenizers.models.BPE(vocab, [], unk_token="<unk>", byte_fallback=True)
  )
  tokenizer.normalizer = tokenizers.normalizers.Sequence(
    [
      tokenizers.normalizers.Prepend("▁"),
      tokenizers.normalizers.Replace(" ", "▁"),
    ]
  )
  tokenizer.decoder = tokenizers.decoders.Sequence(
    [
      tokenizers.decoders.Replace("▁", " "),
      tokenizers.decoders.ByteFallback(),
      tokenizers.decoders.Fuse(),
      tokenizers.decoders.Strip(" ", 1, 0),
    ]
  )
  tokenizer.add_special_tokens(["<s>"])
  return _save(tmp_path_factory.mktemp("byte_fallback"), tokenizer)


@pytest.fixture(scope="module")
def words(tmp_path_factory):
  folder = tmp_path_factory.mktemp("words")
  tiny.save_tokenizer(folder, 32)
  return Tokenizer.from_folder(folder)


KINDS = ("byte_level", "byte_fallback", "words")


@pytest.fixture(params=KINDS)
def any_tokenizer(request):
  return request.getfixturevalue(request.param)


def _check_stream(tokenizer, ids):
  stream = tokenizer.stream()
  pieces = stream.push(ids)
  assert len(pieces) == len(ids)
  assert "".join([*pieces, stream.flush()]) == tokenizer.decode(ids)
  return pieces


@pytest.mark.parametrize("text", TEXTS)
def test_streamed_text_is_the_text(any_tokenizer, text):
  _check_stream(any_tokenizer, any_tokenizer.encode(text))


@pytest.mark.parametrize("seed", range(20))
def test_any_tokens_stream_to_their_text(any_tokenizer, seed):
  # Mostly bytes that are no characters, and special tokens in between.
  rng = random.Random(seed)
  ids = [rng.randrange(any_tokenizer.size) for _ in range(rng.randrange(120))]
  _check_stream(any_tokenizer, ids)


@pytest.mark.parametrize("seed", range(10))
def test_bytes_of_characters_stream_to_their_text(byte_fallback, seed):
  rng = random.Random(seed)
  alphabet = [chr(c) for c in (0x41, 0xE9, 0x65E5, 0x1F600)]
  text = "".join(rng.choices(alphabet, k=40)).encode()
  noisy = bytes(b ^ (rng.random() < 0.03) for b in text)
  vocab = byte_fallback._tokenizer.get_vocab()
  ids = [vocab[f"<0x{b:02X}>"] for b in noisy]
  for place in range(5, len(ids), 17):
    ids.insert(place, vocab["▁the"])
  _check_stream(byte_fallback, ids)


def test_half_characters_are_held_back(byte_level):
  bytes_of_face = byte_level._tokenizer.convert_tokens_to_ids(list("ðŁĺĢ"))
  ids = [*bytes_of_face, *byte_level.encode("a")]
  assert _check_stream(byte_level, ids) == ["", "", "", "😀", "a"]


def test_pieces_come_at_once_where_they_can(byte_level):
  ids = byte_level.encode("plain text")
  stream = byte_level.stream()
  for i, token in enumerate(ids):
    assert stream.push([token]) == [byte_level.decode([token])]
    assert byte_level.decode(ids[: i + 1])
  assert stream.flush() == ""


@pytest.mark.parametrize("token", [255, 128, 0])
def test_the_window_stays_small(byte_level, token, monkeypatch):
  longest = 0
  decode = byte_level.decode

  def watched(ids):
    nonlocal longest
    longest = max(longest, len(ids))
    return decode(ids)

  monkeypatch.setattr(byte_level, "decode", watched)
  stream = byte_level.stream()
  pieces = stream.push([token] * 500)
  assert longest <= 32
  assert "".join(pieces) + stream.flush() == decode([token] * 500)


def test_special_tokens_are_not_text(any_tokenizer):
  eos = any_tokenizer.eos_ids[0]
  ids = any_tokenizer.encode("a")
  assert any_tokenizer.decode([*ids, eos]) == any_tokenizer.decode(ids)
  assert any_tokenizer.stream().push([eos]) == [""]


def test_ids_survive_a_round_trip(byte_level):
  for text in TEXTS:
    assert byte_level.decode(byte_level.encode(text)) == text


def test_same_as(byte_level, words, tmp_path):
  assert byte_level.same_as(byte_level) is None
  assert "sizes" in words.same_as(byte_level)
  tiny.save_tokenizer(tmp_path, 40)
  longer = Tokenizer.from_folder(tmp_path)
  reason = words.same_as(longer)
  assert reason == (
    "token 31 is '<eos>' in one and 'w31' in the other; sizes 32 and 40"
  )


TEMPLATE = (
  "{% for m in messages %}{{ m['content'] }} {% endfor %}"
  "{% if add_generation_prompt %}w9{% endif %}"
)


def _with_template(folder, template):
  tiny.save_tokenizer(folder, 32, chat_template=template)
  return Tokenizer.from_folder(folder)


def test_chat_template_ends_where_the_answer_begins(tmp_path):
  tokenizer = _with_template(tmp_path, TEMPLATE)
  messages = [{"role": "user", "content": "w1"}, {"role": "x", "content": "w2"}]
  assert tokenizer.apply_chat_template(messages) == [1, 2, 9]


def test_chat_without_a_template_is_refused(words):
  with pytest.raises(ValueError, match="no chat template"):
    words.apply_chat_template([{"role": "user", "content": "w1"}])


def test_a_template_can_refuse(tmp_path):
  tokenizer = _with_template(tmp_path, "{{ raise_exception('only users') }}")
  with pytest.raises(ValueError, match="only users"):
    tokenizer.apply_chat_template([{"role": "system", "content": ""}])


@pytest.mark.parametrize(
  "attack",
  [
    "{{ cycler.__init__.__globals__.os.system('touch %s') }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}{# %s #}",
    "{{ messages.append({'role': 'x', 'content': 'w3'}) }}{# %s #}",
    "{%% include '%s' %%}",
  ],
)
def test_a_malicious_template_does_not_run(tmp_path, attack):
  trace = tmp_path / "trace"
  tokenizer = _with_template(tmp_path, attack % trace)
  messages = [{"role": "user", "content": "w1"}]
  with pytest.raises(ValueError, match="chat template failed"):
    tokenizer.apply_chat_template(messages)
  assert not trace.exists()
  assert len(messages) == 1


def test_folders_without_a_tokenizer_are_refused(tmp_path):
  with pytest.raises(ValueError, match="no tokenizer in"):
    Tokenizer.from_folder(tmp_path)
  (tmp_path / "tokenizer.json").write_text("{")
  with pytest.raises(ValueError, match="cannot read the tokenizer"):
    Tokenizer.from_folder(tmp_path)


def test_code_of_a_tokenizer_does_not_run(tmp_path):
  trace = tmp_path / "trace"
  tiny.save_tokenizer(
    tmp_path,
    32,
    tokenizer_class="Custom",
    auto_map={"AutoTokenizer": ["code.Custom", "code.Custom"]},
  )
  code = f"open({str(trace)!r}, 'w')\nclass Custom: pass\n"
  (tmp_path / "code.py").write_text(code)
  with contextlib.suppress(ValueError):
    Tokenizer.from_folder(tmp_path)
  assert not trace.exists()


def test_special_tokens_are_added_as_the_tokenizer_does(tmp_path):
  tiny.save_tokenizer(tmp_path, 32)
  path = tmp_path / "tokenizer.json"
  tokenizer = tokenizers.Tokenizer.from_file(str(path))
  tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
    single=f"{tiny.EOS} $A", special_tokens=[(tiny.EOS, 31)]
  )
  tokenizer.save(str(path))
  assert Tokenizer.from_folder(tmp_path).encode("w1 w2") == [31, 1, 2]


@pytest.mark.parametrize("kind", ["byte_level", "byte_fallback"])
@pytest.mark.parametrize("text", TEXTS)
def test_bytes_of_tokens_are_the_text(kind, text, request):
  tokenizer = request.getfixturevalue(kind)
  ids = [*tokenizer.encode(text), *tokenizer.special_ids]
  written = b"".join(tokenizer.token_bytes[i] for i in ids)
  # A space that the normalizer has put before the text is stripped.
  prefix = " " if kind == "byte_fallback" and text else ""
  assert written.decode() == prefix + tokenizer.decode(ids)


def test_a_token_may_write_half_a_character(byte_level):
  half, other = byte_level._tokenizer.convert_tokens_to_ids(["Ã", "©"])
  written = byte_level.token_bytes
  assert (written[half] + written[other]).decode() == "é"


def test_added_text_is_written_as_it_is(byte_level):
  byte_level._tokenizer.add_tokens(["<tool call>"])
  grown = Tokenizer(byte_level._tokenizer)
  assert grown.token_bytes[grown.size - 1] == b"<tool call>"


def test_words_do_not_write_bytes(words):
  with pytest.raises(ValueError, match="with the decoder none"):
    _ = words.token_bytes


def test_rows_that_fill_up_an_embedding_write_nothing(byte_level):
  before = len(byte_level._tokenizer)
  byte_level._tokenizer.add_tokens([f"[PAD{before + i}]" for i in range(3)])
  padded = Tokenizer(byte_level._tokenizer)
  assert len(padded.token_bytes) == padded.size == before
