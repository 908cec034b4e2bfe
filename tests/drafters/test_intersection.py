"""Drafts that have another tokenizer than their target."""

import dataclasses

import jax
import numpy as np
import pytest
import tokenizers

from specdec_jax import DraftModel, SamplingParams, SpeculativeDecoder
from specdec_jax.acceptance import named_rule
from specdec_jax.drafters.intersection import translate
from specdec_jax.sampling import LOG_ZERO
from specdec_jax.testing import table_model
from tests.decode import test_joint_law as joint
from tests.decode import toys
from tests.drafters.vocabularies import byte_fallback, byte_level

LETTERS = "abcdefghijklmnopqrstuvwxyz"
DIGITS = "0123456789"
CLOSE = {"rtol": 2e-5, "atol": 2e-6}
BYTES = [f"<0x{byte:02X}>" for byte in range(16)]


def _reading(model, tokenizer):
  """The model with a tokenizer."""
  return dataclasses.replace(model, tokenizer=tokenizer)


# 61 tokens each. The target has 16 bytes and 6 words that the draft spells
# with letters, the draft merges that the target lacks.
LLAMA = byte_fallback(
  *BYTES, "▁", *LETTERS, *DIGITS, "▁the", "▁of", "ing", "▁and", "er", "▁in"
)
GPT = byte_level(
  *DIGITS, *LETTERS[::-1], "Ġ", "Ġand", *(c * 2 for c in LETTERS[:22])
)
THE = LLAMA.token_bytes.index(b" the")
TARGET = _reading(toys.tiny(), LLAMA)
DRAFT = _reading(toys.tiny("qwen3", seed=5), GPT)


def _spelled(model, text: list[int]) -> tuple[list[int], list[int]]:
  """A text in the draft's tokens, and where each token ends; by hand."""
  _, words = model.params
  spelling, ends = [], []
  for place, token in enumerate(text):
    row = token + model.network.vocab_size * (place == 0)
    begin, end = words.offset_R[row : row + 2].tolist()
    spelling += words.spelling_P[begin:end].tolist()
    ends.append(len(spelling))
  return spelling, ends


def _bind(draft, target, count=4):
  return DraftModel(draft, count, vocabulary="intersection").bind(target)


@pytest.mark.parametrize("draft, target", [(DRAFT, TARGET), (TARGET, DRAFT)])
def test_logits_are_those_of_the_draft_after_the_spelling(draft, target):
  model = translate(draft, target)
  text = toys.prompts([40])[0]
  spelling, ends = _spelled(model, text)
  assert len(spelling) > len(text)
  own_TV = draft.logits(spelling)[np.array(ends) - 1]
  same_V = np.asarray(model.params[1].same_V)
  expected_TV = np.where(same_V >= 0, own_TV[:, same_V], LOG_ZERO)
  np.testing.assert_allclose(model.logits(text), expected_TV, **CLOSE)


def test_a_pass_goes_on_behind_what_is_committed():
  """Ragged rows, rolled back; the texts are spelled in unequal lengths."""
  model = translate(DRAFT, TARGET)
  texts_BT = np.array(toys.prompts([24, 24]), np.int32)
  forward = jax.jit(model.network.forward)

  def feed(text_BT, start_B, cache):
    slot_BT = np.array(start_B)[:, None] + np.arange(6)
    token_BT = np.take_along_axis(text_BT, slot_BT, axis=1)
    return forward(model.params, token_BT, np.array(start_B), cache)

  cache = model.network.init_cache(2, 32)
  *_, cache = feed(texts_BT, [0, 0], cache)
  *_, cache = feed(texts_BT[::-1], [6, 2], cache)  # rejected
  *_, cache = feed(texts_BT, [6, 2], cache)
  *_, cache = feed(texts_BT[::-1], [9, 7], cache)  # rejected
  start_B = [9, 7]
  hidden_BTD, _, cache = feed(texts_BT, start_B, cache)
  logits_BTV = np.asarray(model.network.head(model.params, hidden_BTD))
  for row, start in enumerate(start_B):
    expected_TV = model.logits(texts_BT[row].tolist())[start : start + 6]
    np.testing.assert_allclose(logits_BTV[row], expected_TV, **CLOSE)


# The last is four times as long for the draft, and does not fit its cache.
PROMPTS = [[7], *toys.prompts([5]), [0, 30, 31, 32, 33] * 5, [THE] * 36]


def _decode(target, draft, params, tokens):
  decoder = SpeculativeDecoder(target, _bind(draft, target))
  return decoder.generate(PROMPTS, sampling=params, max_new_tokens=tokens)


def test_greedy_is_plain_decoding():
  result = _decode(TARGET, DRAFT, SamplingParams(), 24)
  for prompt, tokens in zip(PROMPTS, result.tokens, strict=True):
    assert tokens == toys.greedy_text(TARGET, prompt, 24)
  drafts = [stats.draft_tokens for stats in result.row_stats]
  assert min(drafts[:3]) > 0 and drafts[3] == 0


def test_the_target_under_other_ids_is_always_right():
  letters = [*LETTERS, *LETTERS.upper(), *DIGITS[:8]]  # 61 with EOS
  order_V = np.array([0, *(1 + np.random.default_rng(0).permutation(60))])
  target = _reading(toys.tiny(), byte_level(*letters))
  params = dict(target.params)
  for name in ("embed.weight", "head.weight"):
    params[name] = params[name][order_V]
  draft = _reading(
    dataclasses.replace(target, params=params),
    byte_level(*(letters[i - 1] for i in order_V[1:])),
  )
  result = _decode(target, draft, SamplingParams(temperature=1, seed=1), 100)
  for stats in result.row_stats:
    assert stats.accepted_tokens == stats.draft_tokens
    assert stats.tokens_per_target_pass == 5


# The draft has b, a, and no cd, which it spells; x is not the target's. The
# end of sequence is a token like others: no model here ends a row.
LAW = np.random.default_rng(1).dirichlet(np.ones(4), (4, 4))
DRAFT_LAW = np.random.default_rng(2).dirichlet(np.ones(6), (6, 6))
SPELLED = ([0], [4], [3], [2, 1])
PROMPT = (1, 3)


def _restricted(text) -> np.ndarray:
  """The draft's law after a text, of the tokens that both have."""
  *_, older, newest = [i for token in (*PROMPT, *text) for i in SPELLED[token]]
  law = DRAFT_LAW[older, newest] * [1, 0, 0, 1, 1, 0]
  return np.array([law[0], law[4], law[3], 0]) / law.sum()


@pytest.mark.parametrize("rule", ["token", "block", "gumbel"])
def test_joint_law_and_passes_are_as_enumerated(rule):
  """Of 20,000 rows, as tests/decode/test_joint_law.py has it."""
  target = _reading(table_model(LAW), byte_level("a", "b", "cd"))
  draft = _reading(table_model(DRAFT_LAW), byte_level("d", "c", "b", "a", "x"))
  # The decoder itself needs no tokenizer, and 20,000 texts take their time.
  decoder = SpeculativeDecoder(
    table_model(LAW), _bind(draft, target, joint.K), rule
  )
  result = decoder.generate(
    [PROMPT] * joint.ROWS, sampling=joint.WARM, max_new_tokens=5
  )
  joint.assert_law(result.tokens, LAW, PROMPT)
  if rule == "gumbel":
    return
  passes = np.array([stats.target_passes for stats in result.row_stats])
  expected = joint.expected_passes(
    named_rule(rule), toys.table_law(LAW, joint.WARM, PROMPT), _restricted, 5
  )
  error = passes.std() / np.sqrt(joint.ROWS)
  assert passes.mean() == pytest.approx(expected, abs=5 * error)


def test_one_tokenizer_needs_no_translation():
  assert _bind(TARGET, TARGET).model is TARGET
  translated = _bind(DRAFT, TARGET)
  assert translated.bind(TARGET) is translated


def test_what_cannot_be_translated_is_refused():
  with pytest.raises(ValueError, match='or vocabulary="intersection"'):
    SpeculativeDecoder(TARGET, DraftModel(DRAFT, 2))
  with pytest.raises(ValueError, match=r"vocabulary: .* got 'union'"):
    DraftModel(DRAFT, 2, vocabulary="union")
  with pytest.raises(ValueError, match="table has no tokenizer"):
    _bind(table_model(LAW), TARGET)
  strangers = byte_level(*"0123", *(c * 3 for c in LETTERS), *LETTERS.upper())
  with pytest.raises(ValueError, match="share 5 of their 61 and 57 tokens"):
    _bind(DRAFT, _reading(TARGET, strangers))
  words = byte_level(*LETTERS)
  words._tokenizer.backend_tokenizer.decoder = tokenizers.decoders.WordPiece()
  with pytest.raises(ValueError, match=r"tokenizer of tiny: .* WordPiece"):
    _bind(_reading(DRAFT, words), TARGET)
