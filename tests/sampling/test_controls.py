"""Penalties, biases and bans against their definition, text by text."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax.sampling import (
  LOG_ZERO,
  Controls,
  History,
  SamplingParams,
)
from tests.decode import toys

VOCAB, SLOTS = 7, 12
EOS = (5,)
ROWS = [
  SamplingParams(),
  SamplingParams(repetition_penalty=1.7),
  SamplingParams(repetition_penalty=0.6, presence_penalty=0.5),
  SamplingParams(frequency_penalty=0.8, presence_penalty=-0.3),
  SamplingParams(logit_bias={0: 2.0, 6: -3.5}, repetition_penalty=2.0),
  SamplingParams(allowed_token_ids=[1, 2, 5], min_new_tokens=4),
  SamplingParams(min_new_tokens=2, frequency_penalty=-1.0),
]
PROMPTS = [[1, 2], [0, 6, 6], [3], [2, 2], [0, 1], [4], [4, 5]]
TEXTS = [[2, 2], [1], [], [6, 2, 2], [6], [1, 2], [5]]
DRAFTS = np.random.default_rng(0).integers(0, VOCAB, (len(ROWS), 3))


@jax.jit
def adjusted(controls, tokens_BS, prompt_B, token_BT, count_B, logits_BTV):
  history = History.of_prompts(tokens_BS, prompt_B, VOCAB)
  history = history.add(token_BT, count_B)
  length_B = prompt_B + count_B
  places = logits_BTV.shape[1]
  ahead_BT = jnp.broadcast_to(jnp.arange(places), (len(ROWS), places))
  written_BTV = history.along(jnp.asarray(DRAFTS), ahead_BT)
  eos_BE = jnp.full((len(ROWS), 2), -1).at[:, 0].set(EOS[0])
  return controls.adjust(
    logits_BTV,
    length_B[:, None] + ahead_BT,
    history.prompt_BV,
    written_BTV,
    eos_BE,
  )


def test_every_position_sees_the_drafts_before_it():
  logits_BTV = np.random.default_rng(1).normal(0, 2, (len(ROWS), 4, VOCAB))
  tokens_BS = np.full((len(ROWS), SLOTS), 3)  # undefined behind the text
  token_BT = np.full((len(ROWS), 3), 4)
  for row, (prompt, text) in enumerate(zip(PROMPTS, TEXTS, strict=True)):
    tokens_BS[row, : len(prompt)] = prompt
    token_BT[row, : len(text)] = text
  lengths = [len(prompt) for prompt in PROMPTS]
  result = adjusted(
    Controls.of(ROWS, lengths, VOCAB),
    jnp.asarray(tokens_BS),
    jnp.asarray(lengths),
    jnp.asarray(token_BT),
    jnp.asarray([len(text) for text in TEXTS]),
    jnp.asarray(logits_BTV, jnp.float32),
  )
  for row, params in enumerate(ROWS):
    for place in range(4):
      text = [*TEXTS[row], *DRAFTS[row, :place]]
      expected = toys.controlled(
        logits_BTV[row, place], params, PROMPTS[row], text, EOS
      )
      expected = np.maximum(expected, LOG_ZERO)
      np.testing.assert_allclose(
        result[row, place], expected, rtol=1e-5, err_msg=f"{row}, {place}"
      )


@pytest.mark.parametrize(
  "fields",
  [
    {"repetition_penalty": 1.1},
    {"presence_penalty": -0.1},
    {"frequency_penalty": 0.1},
    {"logit_bias": {1: 0.0}},
    {"allowed_token_ids": [1]},
    {"min_new_tokens": 1},
  ],
)
def test_what_makes_a_request_controlled(fields):
  assert SamplingParams(**fields).controlled
  assert not SamplingParams(temperature=1.0, stop="x", top_p=0.5).controlled


@pytest.mark.parametrize(
  "name, values",
  [
    ("repetition_penalty", [0, -1, float("nan"), 1e9, "1", None]),
    ("presence_penalty", [float("inf"), 101, "x"]),
    ("frequency_penalty", [float("nan"), -101]),
    (
      "logit_bias",
      [
        {-1: 1.0},
        {0: float("nan")},
        {0: 1e12},
        {0: "x"},
        {"a": 1},
        5,
        [1, 2],
        [(1, 2.0), (1, 3.0)],
      ],
    ),
    ("allowed_token_ids", [[], [-1], [1.5], 3, "12", [True]]),
    ("stop", ["", ["a", ""], 5, [1], [["a"]], b"a", "\ud800"]),
    ("min_new_tokens", [-1, 1.5, True]),
  ],
)
def test_values_outside_their_range(name, values):
  for value in values:
    with pytest.raises(ValueError, match=f"^{name}: expected"):
      SamplingParams(**{name: value})


def test_parameters_are_keys():
  given = SamplingParams(
    logit_bias={3: 1.0, 1: 2.0}, stop="x", allowed_token_ids={4, 2}
  )
  same = SamplingParams(
    logit_bias=[(1, 2.0), (3, 1.0)], stop=["x"], allowed_token_ids=(2, 4)
  )
  assert given == same and hash(given) == hash(same)
