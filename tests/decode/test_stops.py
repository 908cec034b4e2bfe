"""Rows end at their stop strings, wherever in a block and in a token."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax import NoDraft, SamplingParams, SpeculativeDecoder
from tests.decode import toys

K = 4
PIECES = [
  *(bytes([byte]) for byte in range(97, 123)),
  b" ",
  b"\n",
  b"the end",
  b"a\n\nb",
  *(bytes([byte]) for byte in "é日🙂".encode()),
  b"x\xc3",  # text, and half of a character
]
TOKENIZER = toys.byte_tokenizer(PIECES)
VOCAB = len(PIECES) + 1
EOS = len(PIECES)
IDS = {piece: token for token, piece in enumerate(PIECES)}
LENGTH = 40


def _tokens(text: str) -> list[int]:
  return [IDS[bytes([byte])] for byte in text.encode()]


def _decoder(text, drafter=None):
  """One that writes these tokens after a prompt of one token."""
  script_1P = np.full((1, 2 * LENGTH), IDS[b"z"])
  script_1P[0, 1 : len(text) + 1] = text
  logits = toys.certain(script_1P, VOCAB)
  target = toys.script_model(logits, eos_ids=(EOS,))
  target = dataclasses.replace(target, tokenizer=TOKENIZER)
  drafts = jnp.asarray(np.pad(script_1P, ((0, 0), (0, 99))), jnp.int32)
  full = jnp.full(drafts.shape, K, jnp.int32)
  drafter = drafter or toys.ScriptedDrafter(K, (drafts, full))
  return SpeculativeDecoder(target, drafter)


def _check(text, stop, tokens, expected, reason="stop", **params):
  """What generate and stream give, with drafts and without."""
  sampling = SamplingParams(stop=stop, logprobs=True, **params)
  for drafter in (None, NoDraft()):
    decoder = _decoder(text, drafter)
    (row,) = decoder.generate(
      [[0]], sampling=sampling, max_new_tokens=LENGTH - K
    ).completions
    assert (row.text, row.finish_reason) == (expected, reason)
    assert row.tokens == list(text[:tokens])
    assert len(row.log_probs) == len(row.drafted) == row.stats.new_tokens
    assert row.stats.new_tokens == tokens
    assert row.stats.accepted_tokens == sum(row.drafted)
    assert row.stats.draft_tokens <= tokens
    for blocks in (1, 2, 99):
      chunks = list(
        decoder.stream(
          [0], sampling=sampling, max_new_tokens=LENGTH - K, blocks=blocks
        )
      )
      assert "".join(chunk.text for chunk in chunks) == expected
      assert [t for chunk in chunks for t in chunk.tokens] == row.tokens
      assert chunks[-1].finish_reason == reason
      for chunk in chunks:
        assert "".join(chunk.pieces) == chunk.text or not chunk.tokens


@pytest.mark.parametrize("before", range(K + 3))
def test_every_offset_of_a_block(before):
  text = _tokens("q" * before + "stopping")
  _check(text, "stop", before + 4, "q" * before)


@pytest.mark.parametrize("stop", ["e", "the", "he e", " end", "d"])
def test_inside_of_a_token(stop):
  text = [*_tokens("qq"), IDS[b"the end"], *_tokens("qq")]
  _check(text, stop, 3, "qqthe end".split(stop)[0])


def test_in_the_middle_of_one_token_and_of_the_next():
  text = [IDS[b"a\n\nb"], IDS[b"the end"], *_tokens("q")]
  _check(text, "\nbt", 2, "a\n")
  _check(text, "\n\n", 1, "a")


def test_the_first_to_be_complete_counts():
  text = _tokens("qabcdq")
  _check(text, ["bcd", "c"], 4, "qab")
  _check(text, ["c", "bcd"], 4, "qab")
  # Of those complete at once the longest, in whatever order.
  _check(text, ["d", "bcd", "cd"], 5, "qa")


def test_equal_to_the_beginning_of_another():
  _check(_tokens("qababac"), ["abac", "aba"], 4, "q")
  _check(_tokens("qababac"), ["abac", "ababc"], 7, "qab")


def test_what_may_become_a_stop_string_is_not_lost():
  _check([*_tokens("abababq")[:7], EOS], "ababc", 8, "abababq", reason="eos")
  _check([*_tokens("qaba"), EOS], "abac", 5, "qaba", reason="eos")
  text = _tokens("q" * (LENGTH - K - 3) + "aba")
  _check(
    text, "abac", LENGTH - K, "q" * (LENGTH - K - 3) + "aba", reason="length"
  )


def test_at_the_limit():
  text = _tokens("qqqstop")
  _check(text, "stop", 7, "qqq", max_new_tokens=7)
  _check(text, "stop", 6, "qqqsto", reason="length", max_new_tokens=6)


def test_characters_of_several_bytes():
  text = _tokens("日é🙂é日q")
  _check(text, "🙂", 9, "日é")
  _check(text, ["🙂é", "日q"], 11, "日é")
  _check(text, "é日", 14, "日é🙂")
  # Half a character before it shows as what it is, half of one.
  half = [*_tokens("q"), IDS[b"x\xc3"], *_tokens("ab")]
  _check(half, "ab", 4, "qx\N{REPLACEMENT CHARACTER}")


def test_half_a_character_behind_it():
  _check([*_tokens("qa"), IDS[b"x\xc3"], IDS[b"\xa9"]], "ax", 3, "q")


def test_the_minimum_comes_first():
  text = _tokens("abqabqab")
  _check(text, "ab", 5, "abq", min_new_tokens=3)
  _check(text, "ab", 5, "abq", min_new_tokens=5)
  _check(text, "ab", 8, "abqabq", min_new_tokens=6)


def test_an_eos_is_no_text():
  text = [*_tokens("qs"), EOS, *_tokens("top")]
  _check(text, "stop", 3, "qs", reason="eos")
  _check(text, "stop", 6, "q", ignore_eos=True)


def test_rows_with_stops_of_their_own():
  text = _tokens("the quick brown fox")
  script_BP = np.tile([[0, *text, *[0] * 60]], (4, 1))
  target = toys.script_model(toys.certain(script_BP, VOCAB))
  target = dataclasses.replace(target, tokenizer=TOKENIZER)
  stops = ["quick", [], ["fox", "row"], "never"]
  params = [SamplingParams(stop=stop) for stop in stops]
  result = SpeculativeDecoder(target).generate(
    [[0]] * 4, sampling=params, max_new_tokens=len(text)
  )
  whole = "the quick brown fox"
  assert result.texts == ["the ", whole, "the quick b", whole]
  assert result.finish_reasons == ["stop", "length", "stop", "length"]


def test_stop_strings_need_text():
  target = toys.tiny()
  with pytest.raises(ValueError, match="stop: tiny has no tokenizer"):
    SpeculativeDecoder(target).start([1], sampling=SamplingParams(stop="x"))
