"""Pairs of real shapes, compiled for chips that are not here.

Widths are those of the models. Of the layers a few are compiled, which are as
the others; what is said of memory is said of all of them.
"""

import collections
import functools
import math
import re

import jax
import numpy as np
import pytest

from specdec_jax import decode, sharding
from specdec_jax.acceptance import named_rule
from specdec_jax.plan import abstract, chips, fit, hlo, passes, planner
from specdec_jax.plan.roofline import pass_time
from tests.plan.conftest import CONFIGS

# What was compiled for chips that are not here cannot be read from the cache.
pytestmark = [
  pytest.mark.aot,
  pytest.mark.filterwarnings("ignore:Error reading persistent compilation"),
]

QWEN = "qwen3-8b", "qwen3-0.6b"
LLAMA = "llama-3.1-70b", "llama-3.1-8b"
GEMMA = "gemma-3-27b", "gemma-3-1b"
CASES = [
  (QWEN, "v5e:2x4"),
  (QWEN, "v5p:2x2x1"),
  (QWEN, "v6e:2x2"),
  (LLAMA, "v5e:4x4"),  # more chips than key-value heads
  (LLAMA, "v5p:2x2x1"),
  (LLAMA, "v6e:2x4"),
  (GEMMA, "v5e:2x4"),
  (GEMMA, "v5p:2x2x1"),
  (GEMMA, "v6e:2x2"),
]
RULES = ("token", "gumbel", "threshold", "typical", "lenient")  # besides block
LAYERS = {"target": 4, "draft": 2}
BATCH, LENGTH = 8, 4  # B and K
PASSES = [(*case, T) for case in CASES for T in (LENGTH + 1, 2 * LENGTH + 1)]


def falls_short(cases, *known):
  """Marks those known to fall short.

  What a pass moves over what it needs, for 5 and 9 tokens: on v5p, which keeps
  no scores on the chip, Qwen 1.115 and 1.218, Llama 1.071 and 1.132, Gemma
  1.067 and 1.126; on v5e:4x4 Llama 1.000 and 1.066.
  """
  mark = pytest.mark.xfail(
    reason="moves more than it needs", raises=AssertionError, strict=True
  )
  assert set(known) <= set(cases)
  return [
    pytest.param(*case, marks=mark) if case in known else case for case in cases
  ]


@pytest.fixture(autouse=True)
def compiler():
  pytest.importorskip("libtpu")


def request_of(names, topology, layers=LAYERS):
  """What to plan: models cut to so many layers, or whole if None."""
  configs = {
    kind: abstract.read_config(str(CONFIGS / name))
    for kind, name in zip(("target", "draft"), names, strict=True)
  }
  if layers:
    configs = {
      kind: passes.with_layers(config, layers[kind])
      for kind, config in configs.items()
    }
  return planner.Request(
    **configs,
    topology=chips.parse(topology),
    batch_size=BATCH,
    num_draft_tokens=LENGTH,
  )


@functools.cache
def pair_of(names, topology):
  request = request_of(names, topology)
  mesh = sharding.make_mesh(
    *request.sizes(request.topology), request.topology.describe()
  )
  return request.pair(mesh)


@functools.cache  # of arguments as they are given: none has a default
def generation(names, topology, rule):
  """The whole generation: its memory, and its text."""
  pair = pair_of(names, topology)
  engine = pair.engine.__class__(
    pair.engine.target, pair.engine.drafter, named_rule(rule)
  )
  number = abstract.everywhere(pair.target.mesh, np.int32(0))
  compiled = passes._compile(
    functools.partial(decode.run, engine),
    (pair.weights, pair.state, number, number),
    abstract.shardings(pair.state),
  )
  return compiled.memory_analysis(), compiled.as_text()


@functools.cache
def verify(names, topology, tokens):
  """A verify pass of all layers, and the bytes that it cannot do without."""
  whole = request_of(names, topology, layers=None)
  pair = whole.pair(pair_of(names, topology).target.mesh)
  cost = passes.measure(pair.target, pair, tokens)
  found = planner._pass(pair, whole.topology, "verify", tokens, cost)
  vocab = pair.target.network.vocab_size
  ways = sharding.sizes(pair.target.mesh)["model"]
  return found, found.least + BATCH * tokens * vocab * 4 / ways


def check_generation(names, topology, rule="block"):
  pair = pair_of(names, topology)
  memory, text = generation(names, topology, rule)
  # The state is donated.
  assert memory.alias_size_in_bytes >= abstract.bytes_of(
    (pair.state.target, pair.state.draft)
  )
  # Nothing leaves the chips.
  assert not re.search(r" (infeed|outfeed|send|recv)\(|xla_ffi|callback", text)
  # No cache is copied, moved or turned as a whole.
  caches = {
    leaf.sharding.shard_shape(leaf.shape)
    for leaf in jax.tree.leaves((pair.state.target, pair.state.draft))
  }
  for shape in caches:
    dims = ",".join(map(str, shape))
    assert not re.findall(rf"= bf16\[{dims}\]\S* (?:copy|transpose)\(", text)
  # Two sums a layer and pass, and one for the embedding's rows. The target has
  # one pass, the draft two: its first reads two tokens, the others one.
  counts: collections.Counter[tuple[str, int]] = collections.Counter()
  for it in hlo.Module(text).collectives(sharding.sizes(pair.target.mesh)):
    counts[it.kind, it.size] += it.count
  for model, tokens in (
    (pair.target, LENGTH + 1),
    (pair.draft, 2),
    (pair.draft, 1),
  ):
    config = model.network.config
    size = BATCH * tokens * config.hidden_size * 2
    wanted = 2 * config.num_layers + 1 if model.network.split else 0
    assert counts.pop(("all-reduce", size), 0) == wanted
  # What draws and rules send is small: no law, and no logits.
  assert max(size for _, size in counts) < 2**18


@pytest.mark.parametrize("names, topology", CASES)
def test_generations(names, topology):
  check_generation(names, topology)


@pytest.mark.parametrize("rule", RULES)
def test_rules(rule):
  check_generation(QWEN, "v5e:2x4", rule)


@pytest.mark.parametrize("names, topology", CASES)
def test_it_fits(names, topology):
  whole = request_of(names, topology, layers=None)
  pair = whole.pair(pair_of(names, topology).target.mesh)
  memory, _ = generation(names, topology, "block")
  held = sum(fit.held(pair).values())
  needed = held + memory.temp_size_in_bytes
  assert needed < whole.topology.usable_bytes * (1 - fit.RESERVED_SHARE)


@pytest.mark.parametrize(
  "names, topology, tokens",
  falls_short(
    PASSES,
    (QWEN, "v5p:2x2x1", 9),
  ),
)
def test_a_verify_pass_moves_what_it_needs(names, topology, tokens):
  found, needed = verify(names, topology, tokens)
  assert found.cost.traffic <= 1.15 * needed


@pytest.mark.parametrize("names, topology", CASES)
def test_a_verify_pass_sums_twice_a_layer(names, topology):
  found, _ = verify(names, topology, LENGTH + 1)
  reduces = {
    (it.kind, it.axis): it.count
    for it in found.cost.collectives
    if it.size > 2**14
  }
  layers = request_of(names, topology, layers=None).target.num_layers
  assert reduces == {("all-reduce", "model"): 2 * layers + 1}


@pytest.mark.parametrize("names, topology", CASES)
def test_memory_binds_a_verify_pass(names, topology):
  found, _ = verify(names, topology, 2 * LENGTH + 1)
  assert pass_time(found.cost, chips.parse(topology)).bound == "HBM"


@pytest.mark.parametrize(
  "names, topology",
  falls_short(
    CASES,
    (LLAMA, "v5e:4x4"),
    *((names, "v5p:2x2x1") for names in (QWEN, LLAMA, GEMMA)),
  ),
)
def test_a_verify_pass_is_flat_in_its_tokens(names, topology):
  """As long as memory is what binds it."""
  slice_ = chips.parse(topology)
  short, long = (
    pass_time(verify(names, topology, tokens)[0].cost, slice_).memory
    for tokens in (LENGTH + 1, 2 * LENGTH + 1)
  )
  assert long == pytest.approx(short, rel=0.05)


def test_each_key_value_head_lies_on_two_of_sixteen_chips():
  pair = pair_of(LLAMA, "v5e:4x4")
  (key, _), *_ = pair.state.target
  batch, heads, slots, width = key.sharding.shard_shape(key.shape)
  assert (batch, heads, width) == (BATCH, 1, 128)
  assert math.prod(key.shape) == 8 * BATCH * slots * width
