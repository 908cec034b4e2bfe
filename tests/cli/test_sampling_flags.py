"""Flags of the law and of where the text ends reach the decoder."""

import pytest

from specdec_jax.visible import sanitize

PROMPT = ("--prompt=def f(x):", "--num_draft_tokens=3")


def test_text_ends_before_a_stop_string(generate):
  (whole,) = generate.json(*PROMPT, "--max_new_tokens=30")
  # The last character that is one: the text of random weights has few.
  cut = max(i for i, char in enumerate(whole["text"]) if char.isalpha())
  stop = whole["text"][cut]
  cut = whole["text"].index(stop)
  flags = (*PROMPT, "--max_new_tokens=30", f"--stop={stop}", "--stop=never?")
  (result,) = generate.json(*flags)
  assert result["text"] == whole["text"][:cut]
  assert result["finish_reason"] == "stop"
  assert len(result["tokens"]) < 30
  code, out, _ = generate(*flags)
  assert code == 0 and "(ended: stop)" in out
  assert out.startswith(sanitize(whole["text"][:cut]))


@pytest.mark.parametrize(
  "flags",
  [
    ("--repetition_penalty=0.1",),
    ("--presence_penalty=-40",),
    ("--frequency_penalty=-40",),
    ("--logit_bias=40:9,41:-9",),
    ("--allowed_token_ids=40,41,42",),
  ],
)
def test_controls_change_the_text_and_compare_as_identical(generate, flags):
  (plain,) = generate.json(*PROMPT, "--max_new_tokens=16")
  (result,) = generate.json(*PROMPT, *flags, "--max_new_tokens=16", "--compare")
  assert result["tokens"] != plain["tokens"]
  assert result["identical"] is True


def test_only_allowed_tokens_are_written(generate):
  (result,) = generate.json(
    *PROMPT, "--allowed_token_ids=40,41,42", "--max_new_tokens=16"
  )
  assert set(result["tokens"]) <= {40, 41, 42}


@pytest.mark.parametrize(
  "flag, reason",
  [
    ("--stop=", "stop: expected text"),
    ("--logit_bias=5", "--logit_bias: expected ID:NUMBER"),
    ("--logit_bias=a:1", "--logit_bias: expected ID:NUMBER"),
    ("--logit_bias=1:nan", "logit_bias: expected numbers"),
    ("--logit_bias=999999:1", "logit_bias: token 999999 is outside"),
    ("--allowed_token_ids=x", "--allowed_token_ids: expected ID"),
    ("--allowed_token_ids=999999", "token 999999 is outside"),
    ("--repetition_penalty=0", "repetition_penalty: expected"),
    ("--min_new_tokens=500", "min_new_tokens is 500, expected at most"),
    ("--num_samples=0", "--num_samples: expected at least 1"),
  ],
)
def test_bad_values(generate, flag, reason):
  assert reason in generate.refused(*PROMPT, flag)
