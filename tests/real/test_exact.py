"""float32: the same tokens as plain decoding, and as transformers."""

import os
import pathlib

import pytest

import specdec_jax as sd

pytestmark = pytest.mark.real

PROMPTS = (2, 23, 45, 53, 60)  # short ones
NEW_TOKENS = 64


@pytest.fixture(scope="module")
def prompts(humaneval):
  return [humaneval[i] for i in PROMPTS]


@pytest.fixture(scope="module")
def plain(exact_pair, prompts):
  """What plain decoding makes of each prompt alone."""
  decoder = sd.SpeculativeDecoder(exact_pair[0])
  return [
    decoder.generate(prompt, max_new_tokens=NEW_TOKENS).tokens[0]
    for prompt in prompts
  ]


@pytest.mark.parametrize("num_draft_tokens", [1, 4, 8])
def test_greedy_equals_plain(exact_pair, prompts, plain, num_draft_tokens):
  target, draft = exact_pair
  decoder = sd.SpeculativeDecoder(
    target, sd.DraftModel(draft, num_draft_tokens)
  )
  found = decoder.generate(prompts, max_new_tokens=NEW_TOKENS)
  assert found.tokens == plain


@pytest.mark.parametrize("num_draft_tokens", [1, 4, 8])
@pytest.mark.parametrize("rule", ["token", "block", "gumbel"])
def test_greedy_rows_of_every_rule(
  exact_pair, prompts, plain, rule, num_draft_tokens
):
  # An all-greedy batch needs no rule, whichever it is given; a sampled row
  # brings it in.
  target, draft = exact_pair
  drafter = sd.DraftModel(draft, num_draft_tokens)
  decoder = sd.SpeculativeDecoder(target, drafter, rule)
  sampled = sd.SamplingParams(temperature=1.0)
  found = decoder.generate(
    [*prompts, prompts[0]],
    max_new_tokens=NEW_TOKENS,
    sampling=[sd.SamplingParams()] * len(prompts) + [sampled],
  )
  assert found.tokens[:-1] == plain


def test_greedy_equals_transformers(prompts, plain):
  torch = pytest.importorskip("torch")
  transformers = pytest.importorskip("transformers")
  folder = pathlib.Path(os.environ["SPECDEC_MODELS"]) / "qwen2.5-coder-1.5b"
  tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
  model = transformers.AutoModelForCausalLM.from_pretrained(
    folder, dtype=torch.float32
  )
  for prompt, tokens in zip(prompts, plain, strict=True):
    inputs = tokenizer(prompt, return_tensors="pt")
    output = model.generate(
      **inputs,
      max_new_tokens=NEW_TOKENS,
      do_sample=False,
      repetition_penalty=1.0,
    )
    assert output[0, inputs.input_ids.shape[1] :].tolist() == tokens


@pytest.mark.parametrize("draft_tokens", [2, 6])
def test_gumbel_equals_plain_sampling(exact_pair, humaneval, draft_tokens):
  target, draft = exact_pair
  prompts = ["def", *(humaneval[i] for i in (2, 13, 53))]
  sampling = sd.SamplingParams(temperature=1.0, seed=7)

  def tokens(drafter):
    decoder = sd.SpeculativeDecoder(target, drafter, "gumbel")
    return decoder.generate(
      prompts, max_new_tokens=48, sampling=sampling
    ).tokens

  want = tokens(sd.NoDraft())
  assert tokens(sd.DraftModel(draft, draft_tokens)) == want
  assert tokens(sd.PromptLookup(draft_tokens)) == want


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("rule", ["token", "block"])
def test_a_model_accepts_itself(exact_draft, rule, temperature):
  model = exact_draft
  decoder = sd.SpeculativeDecoder(model, sd.DraftModel(model, 4), rule)
  result = decoder.generate(
    "def fibonacci(n):",
    max_new_tokens=200,
    sampling=sd.SamplingParams(temperature=temperature, seed=1),
  )
  assert result.stats.acceptance_rate == 1
