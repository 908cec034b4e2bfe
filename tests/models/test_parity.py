"""Logits equal those of transformers, for every family."""

import functools

import jax
import numpy as np
import pytest

from specdec_jax.models.transformer import random_params
from tests import tiny
from tests.models import make_golden

SLOTS = 16
TOLERANCE = {"rtol": 2e-4, "atol": 2e-4}

each_model = pytest.mark.parametrize("name", tiny.CONFIGS)


@functools.partial(jax.jit, static_argnames="network")
def run(network, params, tokens_BT, start_B, cache):
  hidden, _, cache = network.forward(params, tokens_BT, start_B, cache)
  return network.head(params, hidden), cache


@functools.cache
def golden():
  with np.load(make_golden.FILE) as file:
    return dict(file)


def model(name):
  network = tiny.network(name)
  return network, random_params(network, make_golden.SEED)


@each_model
def test_prefill(name):
  network, params = model(name)
  tokens = golden()["tokens"]
  cache = network.init_cache(len(tokens), SLOTS)
  logits, _ = run(network, params, tokens, np.zeros(2, int), cache)
  np.testing.assert_allclose(logits, golden()[name], **TOLERANCE)


@each_model
def test_cached_rows_at_different_places(name):
  network, params = model(name)
  tokens = golden()["tokens"]
  cache = network.init_cache(len(tokens), SLOTS)
  # Row 1 lags, feeds some positions twice, and reaches the end with row 0.
  for starts in ((0, 0), (4, 3), (8, 6), (8, 8)):
    place = np.array(starts)[:, None] + np.arange(4)
    chunk = np.take_along_axis(tokens, place, axis=1)
    logits, cache = run(network, params, chunk, np.array(starts), cache)
    expected = np.take_along_axis(golden()[name], place[..., None], axis=1)
    np.testing.assert_allclose(logits, expected, **TOLERANCE)


@each_model
def test_golden_numbers_are_those_of_transformers(name):
  pytest.importorskip("torch")
  logits = make_golden.transformers_logits(name, golden()["tokens"])
  np.testing.assert_allclose(logits, golden()[name], rtol=1e-5, atol=1e-5)


def test_golden_numbers_tell_the_models_apart():
  logits = [golden()[name] for name in tiny.CONFIGS]
  for i, one in enumerate(logits):
    for other in logits[:i]:
      assert np.abs(one - other).max() > 0.01
