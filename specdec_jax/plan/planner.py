"""From two models and a slice to figures."""

import dataclasses
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from jax.sharding import AbstractMesh, Mesh

from specdec_jax import sharding
from specdec_jax.models.config import ModelConfig
from specdec_jax.plan import chips, fit, passes
from specdec_jax.plan.abstract import Pair
from specdec_jax.plan.chips import Topology
from specdec_jax.plan.fit import Memory, Remedies
from specdec_jax.plan.roofline import (
  DRAFT_LENGTHS,
  Cost,
  PassTime,
  Prediction,
  pass_time,
)


@dataclasses.dataclass(frozen=True)
class Request:
  """What is asked.

  Attributes:
    target: the target's shape.
    draft: the draft's.
    topology: the slice; None for the smallest that fits.
    mesh: sizes of the axes `data` and `model`; None for all chips on `model`.
    batch_size: rows side by side.
    context_length: tokens of prompt and text together.
    num_draft_tokens: K.
    dtype: of weights, activations and caches.
    quantize: "int8" or None: of the weights of both.
    draft_layout: where the draft's weights lie, see `load`.
  """

  target: ModelConfig
  draft: ModelConfig
  topology: Topology | None
  mesh: tuple[int, int] | None = None
  batch_size: int = 8
  context_length: int = 4000
  num_draft_tokens: int = 4
  dtype: str = "bfloat16"
  quantize: str | None = None
  draft_layout: str = "auto"

  def pair(self, mesh: Mesh | AbstractMesh) -> Pair:
    """The arguments of the generation on this mesh."""
    # The vocabulary is the tokenizer's, which is not here. Rows beyond the
    # smaller one are padding, or tokens that the other model cannot know.
    vocab = min(self.target.vocab_size, self.draft.vocab_size)
    return Pair.of(
      self.target.with_vocab(vocab),
      self.draft.with_vocab(vocab),
      mesh,
      batch_size=self.batch_size,
      context_length=self.context_length,
      num_draft_tokens=self.num_draft_tokens,
      dtype=self.dtype,
      quantize=self.quantize,
      draft_layout=self.draft_layout,
    )

  def sizes(self, topology: Topology) -> tuple[int, int]:
    """The mesh on a slice.

    Raises:
      ValueError: it does not have as many devices.
    """
    if self.mesh is None:
      return 1, topology.num_devices
    data, model = self.mesh
    if data * model != topology.num_devices:
      raise ValueError(
        f"a mesh of {data}x{model} is for {data * model} devices, but "
        f"{topology.name} has {topology.num_devices}"
      )
    return self.mesh


@dataclasses.dataclass(frozen=True)
class Pass:
  """A pass of one of the models.

  Attributes:
    name: "plain", "verify" or "draft".
    tokens: T, of each row.
    cost: what it asks of a device.
    time: seconds at best, by what takes them.
    least: bytes that it cannot do without: weights and caches, read once.
  """

  name: str
  tokens: int
  cost: Cost
  time: PassTime
  least: int


@dataclasses.dataclass(frozen=True)
class Plan:
  """The answer.

  Attributes:
    request: the question.
    topology: the slice.
    mesh: sizes of the axes `data` and `model`.
    pair: the arguments, as shapes.
    memory: of one device.
    remedies: what would make it fit, where it does not.
    program: the generation, compiled; None where it does not fit.
    passes: what it consists of; none where it does not fit.
    prediction: what speculation brings; None where it does not fit.
    seconds: what all of that took to compile.
  """

  request: Request
  topology: Topology
  mesh: tuple[int, int]
  pair: Pair
  memory: Memory
  remedies: Remedies | None
  program: passes.Program | None
  passes: Sequence[Pass]
  prediction: Prediction | None
  seconds: float


def make(
  request: Request, tell: Callable[[str], None] = lambda _: None
) -> Plan:
  """Compiles for the slice, or for the smallest that fits.

  Args:
    request: what is asked.
    tell: is told what goes on, since it takes a while.

  Raises:
    ValueError: no slice fits, the mesh is of another size, or there is no
      compiler.
  """
  if request.topology is not None:
    return _plan(request, request.topology, tell)
  plan = None
  for topology in chips.by_size():
    splits = _splits(topology, request.batch_size)
    for mesh in [request.mesh] if request.mesh else splits:
      split = dataclasses.replace(request, mesh=mesh)
      if not _fits(split, topology):
        continue
      plan = _plan(split, topology, tell)
      if plan.memory.fits:
        return plan
  if plan is None:
    where = "" if request.mesh is None else " on that mesh"
    raise ValueError(
      f"this pair fits none of the slices known{where}; see --help"
    )
  return plan


def _fits(request: Request, topology: Topology, temporaries: int = 0) -> bool:
  """Whether weights and caches fit, by arithmetic."""
  if request.mesh and request.mesh[0] * request.mesh[1] != topology.num_devices:
    return False
  pair = request.pair(sharding.abstract_mesh(*request.sizes(topology)))
  memory = fit.memory_of(pair, topology)
  return memory.total + temporaries <= memory.capacity


def _plan(
  request: Request, topology: Topology, tell: Callable[[str], None]
) -> Plan:
  begin = time.perf_counter()
  sizes = request.sizes(topology)
  mesh = sharding.make_mesh(*sizes, topology.describe())
  pair = request.pair(mesh)
  memory = fit.memory_of(pair, topology)
  program, found = None, []
  if memory.fits:
    tell(f"compiling for {topology.name}")
    try:
      program, costs = _compile(pair)
      memory = fit.memory_of(pair, topology, program)
      found = [_pass(pair, topology, *it) for it in costs]
    except passes.DoesNotFit as error:
      if error.needed is None:
        raise ValueError(
          f"{topology.name}: the compiler refuses it: {error}"
        ) from error
      memory = fit.memory_of(pair, topology, needed=error.needed)
  if not memory.fits:
    found = []
  return Plan(
    request=request,
    topology=topology,
    mesh=sizes,
    pair=pair,
    memory=memory,
    remedies=None if found else _remedies(request, memory, pair, topology),
    program=program,
    passes=found,
    prediction=predict(request.batch_size, found) if found else None,
    seconds=time.perf_counter() - begin,
  )


def _remedies(
  request: Request, memory: Memory, pair: Pair, topology: Topology
) -> Remedies:
  temporaries = memory.kinds.get("temporaries", 0)
  larger = next(
    (
      (it, mesh)
      for it in topology.larger()
      for mesh in _splits(it, request.batch_size)
      if _fits(dataclasses.replace(request, mesh=mesh), it, temporaries)
    ),
    None,
  )
  int8 = None
  if request.quantize is None:
    int8 = dataclasses.replace(request, quantize="int8").pair(pair.target.mesh)
  return fit.remedies(memory, pair, int8, larger)


def _splits(topology: Topology, rows: int) -> Iterator[tuple[int, int]]:
  """Meshes of a slice: the weights over all of it first, then rows as well.

  Caches of fewer key-value heads than devices are split further by rows alone.
  """
  data = 1
  while data <= rows and topology.num_devices % data == 0:
    yield data, topology.num_devices // data
    data *= 2


def _compile(
  pair: Pair,
) -> tuple[passes.Program, list[tuple[str, int, Cost]]]:
  """Compiles the generation, and the passes that it consists of.

  Raises:
    DoesNotFit: one of them needs more memory than a device has.
  """
  length = pair.engine.drafter.num_draft_tokens
  wanted = [
    ("plain", pair.target, 1),
    *(
      ("verify", pair.target, tokens)
      for tokens in sorted({length + 1, max(DRAFT_LENGTHS) + 1})
    ),
    ("draft", pair.draft, 1),
  ]
  with warnings.catch_warnings(), ThreadPoolExecutor(os.cpu_count()) as pool:
    # What was compiled for chips that are not here cannot be read from a cache.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent")
    program = pool.submit(passes.compile_generation, pair)
    costs = [
      pool.submit(passes.measure, model, pair, tokens)
      for _, model, tokens in wanted
    ]
    return program.result(), [
      (name, tokens, cost.result())
      for (name, _, tokens), cost in zip(wanted, costs, strict=True)
    ]


def _pass(
  pair: Pair, topology: Topology, name: str, tokens: int, cost: Cost
) -> Pass:
  whose = "draft" if name == "draft" else "target"
  model = pair.draft if whose == "draft" else pair.target
  held = fit.held(pair)
  least = held[f"{whose} weights"] + held[f"{whose} cache"]
  if "head.weight" in model.params:
    # Of the embedding only some rows are read, of the head all.
    least -= fit.embedding_bytes(model)
  return Pass(name, tokens, cost, pass_time(cost, topology), least)


def predict(batch: int, found: Sequence[Pass]) -> Prediction:
  """What the passes make of speculation."""
  target = {it.tokens: it.time for it in found if it.name != "draft"}
  (draft,) = (it.time.total for it in found if it.name == "draft")
  return Prediction(batch, draft, target)
