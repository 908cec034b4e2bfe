"""Drafts with a head of fewer tokens: the same text, for less work."""

import os
import pathlib
import statistics
import sysconfig
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specdec_jax as sd
from specdec_jax.sharding import make_mesh
from specdec_jax.training import prune
from specdec_jax.training.student import from_checkpoint
from tests.real.conftest import load

pytestmark = pytest.mark.real

PROMPTS = range(5, 150, 16)
NEW_TOKENS = 128
SIZES = (64_000, 32_000)


def decode(
  target: sd.LanguageModel, drafter: sd.NoDraft | sd.DraftModel, prompts: list
) -> tuple[list[list[int]], float]:
  """Tokens, and tokens for each of the target's passes."""
  decoder = sd.SpeculativeDecoder(target, drafter)
  result = decoder.generate(prompts, max_new_tokens=NEW_TOKENS)
  return result.tokens, result.stats.tokens_per_target_pass


def step_seconds(
  model: sd.LanguageModel, tokens: int, count: int = 15
) -> float:
  """The median time of a greedy step that feeds so many tokens of one row."""
  network = model.network

  @jax.jit
  def step(params, tokens_BT, cache):
    start_B = jnp.full(1, 100, jnp.int32)
    hidden_BTD, _, cache = network.forward(params, tokens_BT, start_B, cache)
    return network.head(params, hidden_BTD).argmax(axis=-1), cache

  tokens_BT = jnp.ones((1, tokens), jnp.int32)
  cache = network.init_cache(1, 256)
  seconds = []
  for _ in range(count + 2):
    begin = time.perf_counter()
    jax.block_until_ready(step(model.params, tokens_BT, cache))
    seconds.append(time.perf_counter() - begin)
  return statistics.median(seconds[2:])


def python_source() -> list[str]:
  """The standard library, without its tests."""
  folder = pathlib.Path(sysconfig.get_path("stdlib"))
  left_out = {"site-packages", "test", "tests", "idle_test"}
  return [
    file.read_text(encoding="utf-8", errors="replace")
    for file in sorted(folder.rglob("*.py"))
    if not left_out & set(file.relative_to(folder).parts)
  ]


@pytest.fixture(scope="module")
def drafts() -> dict[int, sd.LanguageModel]:
  """The draft by the size of its head; 0 is the whole one."""
  folder = pathlib.Path(os.environ["SPECDEC_MODELS"]) / "qwen2.5-coder-0.5b"
  student = from_checkpoint(str(folder), make_mesh())
  texts = python_source()
  return {0: student.model} | {
    size: prune.limit_vocabulary(student, texts, size).model for size in SIZES
  }


def test_the_same_text_for_nearly_as_few_passes(drafts, humaneval):
  target = load("1.5b", "float32")
  prompts = [humaneval[i] for i in PROMPTS]
  plain, _ = decode(target, sd.NoDraft(), prompts)
  tau = {}
  for size, draft in drafts.items():
    tokens, tau[size] = decode(target, sd.DraftModel(draft, 4), prompts)
    assert tokens == plain
  assert tau[64_000] >= 0.97 * tau[0]


@pytest.mark.parametrize("tokens", [1, 2])
def test_a_step_takes_less_time(drafts, tokens):
  seconds = {
    size: step_seconds(draft, tokens) for size, draft in drafts.items()
  }
  # A quarter of the draft's work is its head.
  assert np.all([seconds[size] < 0.95 * seconds[0] for size in SIZES])
