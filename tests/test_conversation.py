"""A conversation with kept caches says what a fresh run would say."""

import dataclasses
import json

import pytest

import specdec_jax as sd
from tests.cli.tiny_checkpoint import CHAT_TEMPLATE, save_checkpoint

TEMPLATE = CHAT_TEMPLATE + (
  "{% if add_generation_prompt %}[assistant] {% endif %}"
)
TURNS = ["hello", "what is it?", "ok"]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
  folder = tmp_path_factory.mktemp("models")
  save_checkpoint(folder / "target")
  config = folder / "target" / "tokenizer_config.json"
  fields = json.loads(config.read_text())
  config.write_text(json.dumps(fields | {"chat_template": TEMPLATE}))
  target = sd.load(folder / "target", dtype="float32")
  draft = sd.load(
    save_checkpoint(folder / "draft", noise=0.05), dtype="float32"
  )
  letters = [
    i for i, b in enumerate(target.tokenizer.token_bytes) if b.isalpha()
  ]
  return target, sd.DraftModel(draft, 3), letters


def _conversation(models, *, context_length=200, **options):
  target, drafter, letters = models
  params = {"temperature": 0.0, **options.pop("params", {})}
  sampling = sd.SamplingParams(allowed_token_ids=letters, seed=5, **params)
  decoder = sd.SpeculativeDecoder(target, drafter, rule="gumbel")
  return sd.Conversation(
    decoder,
    sampling=sampling,
    max_new_tokens=10,
    context_length=context_length,
    **options,
  )


def _fresh(conversation, messages, turn=0):
  params = conversation._sampling
  return conversation._decoder.generate(
    [messages],
    sampling=dataclasses.replace(params, seed=params.seed + turn),
    max_new_tokens=conversation._max_new_tokens,
  )


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_each_reply_is_that_of_a_fresh_run(models, temperature):
  conversation = _conversation(
    models,
    # So long that all caches are of two sizes: few programs.
    system="be brief" + ", be brief" * 9,
    params={"temperature": temperature},
    context_length=185,
  )
  for number, text in enumerate(TURNS):
    before = conversation.prompt_tokens
    reply = "".join(chunk.text for chunk in conversation.send(text))
    *asked, said = conversation.messages
    fresh = _fresh(conversation, asked, number)
    assert said == {"role": "assistant", "content": reply}
    assert [reply] == fresh.texts
    result = conversation.generation.result()
    assert result.tokens == fresh.tokens
    assert result.row_stats == fresh.row_stats
    new = conversation.prompt_tokens - before
    prefilled = conversation.generation.prefilled_tokens
    if number == 0:
      assert prefilled == conversation.prompt_tokens
    else:
      # The reply before is new in the prompt, but not in the caches.
      assert prefilled <= new - len(reply) + 3
  assert [m["role"] for m in conversation.messages] == [
    "system",
    *["user", "assistant"] * len(TURNS),
  ]


def test_a_reply_cut_short_is_kept(models):
  conversation = _conversation(models)
  chunk = next(conversation.send("hello"))
  conversation.end_turn()
  conversation.end_turn()
  assert conversation.messages[1:] == [
    {"role": "assistant", "content": chunk.text}
  ]
  reply = "".join(c.text for c in conversation.send("go on"))
  assert [reply] == _fresh(conversation, conversation.messages[:3]).texts


def test_reset_forgets(models):
  conversation = _conversation(models, system="s")
  first = [chunk.text for chunk in conversation.send("hello")]
  list(conversation.send("more"))
  conversation.reset()
  assert conversation.messages == [{"role": "system", "content": "s"}]
  assert [chunk.text for chunk in conversation.send("hello")] == first


def test_caches_grow_with_the_conversation(models):
  target, drafter, letters = models
  small = sd.Conversation(
    sd.SpeculativeDecoder(target, drafter),
    sampling=sd.SamplingParams(allowed_token_ids=letters),
    max_new_tokens=10,
    context_length=8,
  )
  slots = []
  for text in ("hello", "x" * 60, "y" * 50):
    reply = "".join(chunk.text for chunk in small.send(text))
    slots.append(small.generation._state.tokens_BS.shape[1])
    assert [reply] == _fresh(small, small.messages[:-1]).texts
  assert slots[0] < slots[1] < slots[2]


def test_a_full_context_is_refused_and_changes_nothing(models):
  conversation = _conversation(models)
  list(conversation.send("hello"))
  before = list(conversation.messages)
  with pytest.raises(ValueError, match=r"conversation: .* tokens, but"):
    next(conversation.send("x" * 500))
  assert conversation.messages == before
  reply = "".join(c.text for c in conversation.send("hi"))
  assert [reply] == _fresh(conversation, conversation.messages[:-1]).texts


def test_no_template_no_conversation(models, tmp_path):
  folder = save_checkpoint(tmp_path / "bare")
  (folder / "tokenizer_config.json").write_text(
    '{"tokenizer_class": "PreTrainedTokenizerFast"}'
  )
  decoder = sd.SpeculativeDecoder(sd.load(folder, dtype="float32"))
  with pytest.raises(ValueError, match="no chat template"):
    sd.Conversation(decoder)


def test_a_bare_template_claims_no_slots_that_were_not_filled(tmp_path):
  folder = save_checkpoint(tmp_path / "bare")
  config = folder / "tokenizer_config.json"
  fields = json.loads(config.read_text())
  template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
  config.write_text(json.dumps(fields | {"chat_template": template}))
  target = sd.load(folder, dtype="float32")
  conversation = sd.Conversation(
    sd.SpeculativeDecoder(target, sd.PromptLookup(3)), max_new_tokens=1
  )
  list(conversation.send("a"))
  assert conversation.generation.prefix().tokens == ()


@pytest.mark.parametrize(
  "options, reason",
  [
    ({"max_new_tokens": 0}, "max_new_tokens: expected"),
    ({"context_length": -1}, "context_length: expected"),
  ],
)
def test_numbers_that_make_no_sense(models, options, reason):
  with pytest.raises(ValueError, match=reason):
    sd.Conversation(sd.SpeculativeDecoder(models[0]), **options)


def test_parameters_that_do_not_fit_are_refused_at_once(models):
  decoder = sd.SpeculativeDecoder(models[0])
  for params, reason in (
    (sd.SamplingParams(logit_bias={999: 1.0}), "token 999 is outside"),
    (sd.SamplingParams(min_new_tokens=999), "min_new_tokens is 999"),
  ):
    with pytest.raises(ValueError, match=reason):
      sd.Conversation(decoder, sampling=params)


def test_the_length_of_a_reply_is_that_of_the_parameters(models):
  conversation = _conversation(models, params={"max_new_tokens": 4})
  list(conversation.send("hello"))
  assert conversation.generation.result().stats.new_tokens == 4
