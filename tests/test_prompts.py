"""What counts as a prompt, and what is said of what does not."""

import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax.prompts import check_request, encode_all
from specdec_jax.sampling import SamplingParams
from specdec_jax.testing import table_model

TARGET = table_model(np.full(5, 0.2), max_length=10)


@pytest.mark.parametrize(
  "prompts, tokens",
  [
    ([1, 2], [[1, 2]]),
    ((1, 2), [[1, 2]]),
    ([[1, 2], [3]], [[1, 2], [3]]),
    ([(1,), [3]], [[1], [3]]),
    (np.array([1, 2]), [[1, 2]]),
    (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
    (jnp.array([4]), [[4]]),
    ([np.array([1, 2]), [3]], [[1, 2], [3]]),
    ([np.int32(1), np.uint8(2)], [[1, 2]]),
  ],
)
def test_token_ids(prompts, tokens):
  assert encode_all(prompts, TARGET) == tokens


@pytest.mark.parametrize(
  "prompts, message",
  [
    ([], "at least one prompt, got none"),
    ([[]], "prompt 0: expected at least one token"),
    ([[1], []], "prompt 1: expected at least one token"),
    ([5], r"prompt 0: token 5 is outside the vocabulary of table, \[0, 5\)"),
    ([[1], [-1]], "prompt 1: token -1 is outside"),
    (7, "got int"),
    (None, "got NoneType"),
    ([[1.5]], "prompt 0: .* got list of float"),
    ([[True]], "prompt 0: .* got list of bool"),
    ([[1], 2.5], "prompt 1: .* got float"),
    (np.array([0.5]), "prompt 0: .* got float"),
    ("text", "table has no tokenizer; give token ids"),
    ([{"role": "user", "content": "x"}], "table has no tokenizer"),
  ],
)
def test_what_is_no_prompt(prompts, message):
  with pytest.raises(ValueError, match=message):
    encode_all(prompts, TARGET)


def _check(length, new, target=TARGET, **params):
  check_request("p", length, new, SamplingParams(**params), target)


def test_lengths():
  _check(9, 1)
  with pytest.raises(ValueError, match=r"p: 10 tokens, but .* holds 10"):
    _check(10, 1)
  with pytest.raises(ValueError, match="set max_new_tokens to at most 3"):
    _check(7, 4)


def test_tokens_outside_the_vocabulary():
  _check(1, 1, logit_bias={4: 1.0}, allowed_token_ids=[4])
  with pytest.raises(ValueError, match=r"p: logit_bias: token 5 is outside"):
    _check(1, 1, logit_bias={1: 1.0, 5: 1.0})
  with pytest.raises(ValueError, match=r"p: allowed_token_ids: token 9 is out"):
    _check(1, 1, allowed_token_ids=[1, 9])


def test_a_minimum_that_cannot_be_reached():
  _check(1, 3, min_new_tokens=3)
  with pytest.raises(ValueError, match="min_new_tokens is 4, expected at most"):
    _check(1, 3, min_new_tokens=4)
  target = table_model(np.full(5, 0.2), max_length=10, eos_ids=(1, 2))
  ends = {"min_new_tokens": 1, "allowed_token_ids": [1, 2]}
  with pytest.raises(ValueError, match="no token is left to draw"):
    _check(1, 3, target, **ends)
  _check(1, 3, target, **ends, ignore_eos=True)
