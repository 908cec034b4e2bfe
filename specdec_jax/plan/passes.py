"""Compiles what a generation consists of, and reads what it costs."""

import collections
import dataclasses
import functools
import re
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from specdec_jax import decode, sharding
from specdec_jax.models.config import ModelConfig
from specdec_jax.models.language_model import LanguageModel
from specdec_jax.models.transformer import TransformerNetwork
from specdec_jax.plan import abstract, hlo
from specdec_jax.plan.abstract import Pair
from specdec_jax.plan.hlo import Collective
from specdec_jax.plan.roofline import Cost
from specdec_jax.types import Array, PyTree

# A pass of all layers takes minutes to compile, and its layers are alike: those
# between the first and the last cost what two more make of it. Of fewer layers
# caches may stay on the chip.
_FEW, _MORE = 4, 6


@dataclasses.dataclass(frozen=True)
class Program:
  """The whole generation, compiled.

  Attributes:
    arguments: bytes of weights and state on each device.
    donated: those of them that the result takes over.
    temporaries: bytes on top of them while it runs.
    code: bytes of the program itself.
    collectives: transfers between devices.
    seconds: what compiling took.
  """

  arguments: int
  donated: int
  temporaries: int
  code: int
  collectives: tuple[Collective, ...]
  seconds: float


class DoesNotFit(Exception):
  """The compiler refuses a program for the memory that it needs.

  Attributes:
    needed: bytes of a device; None where the message does not tell.
  """

  def __init__(self, message: str):
    super().__init__(message)
    found = re.search(r"\(([\d.]+)([KMGT]?)\) exceeds available", message)
    units = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
    self.needed = int(float(found[1]) * units[found[2]]) if found else None


def compile_generation(pair: Pair) -> Program:
  """Compiles the loop that drafts, verifies, accepts and commits.

  Raises:
    DoesNotFit: it needs more memory than a device has.
  """
  begin = time.perf_counter()
  mesh = pair.target.mesh
  number = abstract.everywhere(mesh, np.int32(0))
  compiled = _compile(
    functools.partial(decode.run, pair.engine),
    (pair.weights, pair.state, number, number),
    abstract.shardings(pair.state),
  )
  memory: Any = compiled.memory_analysis()
  module = hlo.Module(compiled.as_text() or "")
  return Program(
    arguments=memory.argument_size_in_bytes,
    donated=memory.alias_size_in_bytes,
    temporaries=memory.temp_size_in_bytes
    + memory.output_size_in_bytes
    - memory.alias_size_in_bytes,
    code=memory.generated_code_size_in_bytes,
    collectives=module.collectives(sharding.sizes(mesh)),
    seconds=time.perf_counter() - begin,
  )


def measure(model: LanguageModel, pair: Pair, tokens: int) -> Cost:
  """What a pass of a model over T tokens of each row costs, with its head.

  Args:
    model: target or draft of the pair.
    pair: what it is a part of.
    tokens: T.
  """
  network = model.network
  assert isinstance(network, TransformerNetwork)
  layers = network.config.num_layers
  if layers <= _MORE:
    return _measure(model, pair, tokens, layers)
  few = _measure(model, pair, tokens, _FEW)
  more = _measure(model, pair, tokens, _MORE)
  return extrapolate(few, more, (layers - _FEW) / (_MORE - _FEW))


def extrapolate(few: Cost, more: Cost, steps: float) -> Cost:
  """The cost on the line through two, `steps` times their distance away."""

  def beyond(a: float, b: float) -> float:
    return a + steps * (b - a)

  counts: dict[Collective, list[float]] = collections.defaultdict(
    lambda: [0.0, 0.0]
  )
  for place, cost in enumerate((few, more)):
    for found in cost.collectives:
      counts[dataclasses.replace(found, count=0)][place] += found.count
  return Cost(
    beyond(few.traffic, more.traffic),
    beyond(few.flops, more.flops),
    tuple(
      dataclasses.replace(found, count=beyond(a, b))
      for found, (a, b) in counts.items()
    ),
  )


def _measure(
  model: LanguageModel, pair: Pair, tokens: int, layers: int
) -> Cost:
  network, mesh = model.network, model.mesh
  assert isinstance(network, TransformerNetwork)
  network = dataclasses.replace(
    network, config=with_layers(network.config, layers)
  )
  params = {path: model.params[path] for path in network.param_infos()}
  caches = pair.state.target if model is pair.target else pair.state.draft
  cache = caches[:layers]
  tokens_BT, start_B = abstract.rows(pair, tokens)

  def run(
    params: PyTree, cache: PyTree, tokens_BT: Array, start_B: Array
  ) -> tuple[Array, PyTree]:
    hidden_BTD, _, cache = network.forward(params, tokens_BT, start_B, cache)
    return network.head(params, hidden_BTD), cache

  compiled = _compile(
    run,
    (params, cache, tokens_BT, start_B),
    # Logits stay where the head leaves them; what follows reduces them there.
    (None, abstract.shardings(cache)),
  )
  analysis: Any = compiled.cost_analysis() or {}
  module = hlo.Module(compiled.as_text() or "")
  return Cost(
    float(module.traffic()),
    float(analysis.get("flops", 0.0)),
    module.collectives(sharding.sizes(mesh)),
  )


def with_layers(config: ModelConfig, layers: int) -> ModelConfig:
  """The first layers of a model.

  Where layers differ, they differ in what they mask: all read all slots.
  """
  return dataclasses.replace(
    config,
    num_layers=layers,
    full_layers=tuple(i for i in config.full_layers if i < layers),
  )


def _compile(
  function: Any, arguments: Sequence[PyTree], where: PyTree
) -> jax.stages.Compiled:
  jitted = jax.jit(function, donate_argnums=1, out_shardings=where)
  try:
    with jax.set_mesh(jax.tree.leaves(arguments)[0].sharding.mesh):
      return jitted.lower(*arguments).compile()
  except jax.errors.JaxRuntimeError as error:
    if "RESOURCE_EXHAUSTED" in str(error):
      raise DoesNotFit(str(error)) from error
    raise
