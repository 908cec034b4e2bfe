"""Compiles programs once, and tells how long that took."""

import functools
import time
from collections.abc import Callable, Hashable
from typing import NamedTuple

import jax

from specdec_jax.types import PyTree

Function = Callable[..., PyTree]
Static = tuple[Hashable, ...]


class Program(NamedTuple):
  """A compiled program.

  Attributes:
    call: takes the arguments it was compiled for.
    seconds: what compiling it took; 0 when it was there already.
  """

  call: Callable[..., PyTree]
  seconds: float


def maker(
  function: Function, static: Static, shardings: PyTree, fields: PyTree
) -> Program:
  """Compiles `function(*static, fields) -> state`, made where it belongs.

  Args:
    function: makes a state.
    static: its static arguments.
    shardings: where each leaf of the state shall lie.
    fields: its argument, arrays.
  """
  return _program(function, static, (fields,), shardings, donated=())


def stepper(
  function: Function,
  static: Static,
  weights: PyTree,
  state: PyTree,
  *values: PyTree,
) -> Program:
  """Compiles `function(*static, weights, state, *values) -> state`.

  The state is donated and keeps its shardings, so the result can be fed to the
  next call. Values may be numpy's: they go where the rest is.
  """
  shardings = jax.tree.map(lambda leaf: leaf.sharding, state)
  arguments = (weights, state, *values)
  return _program(function, static, arguments, shardings, donated=(1,))


def _program(
  function: Function,
  static: Static,
  arguments: tuple[PyTree, ...],
  shardings: PyTree,
  donated: tuple[int, ...],
) -> Program:
  """Compiles, or finds what the process has compiled for the same shapes."""

  def shape(leaf: jax.Array) -> jax.ShapeDtypeStruct:
    where = getattr(leaf, "sharding", None)
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where)

  misses = _compile.cache_info().misses
  call, seconds = _compile(
    function,
    static,
    _Frozen.of(jax.tree.map(shape, arguments)),
    _Frozen.of(shardings),
    donated,
  )
  was_there = _compile.cache_info().misses == misses
  return Program(call, 0.0 if was_there else seconds)


class _Frozen(NamedTuple):
  """A tree that can be a key."""

  structure: jax.tree_util.PyTreeDef
  leaves: tuple[Hashable, ...]

  @classmethod
  def of(cls, tree: PyTree) -> "_Frozen":
    leaves, structure = jax.tree.flatten(tree)
    return cls(structure, tuple(leaves))

  def thaw(self) -> PyTree:
    return jax.tree.unflatten(self.structure, self.leaves)


@functools.lru_cache(maxsize=256)
def _compile(
  function: Function,
  static: Static,
  arguments: _Frozen,
  shardings: _Frozen,
  donated: tuple[int, ...],
) -> tuple[jax.stages.Compiled, float]:
  jitted = jax.jit(
    functools.partial(function, *static),
    donate_argnums=donated,
    out_shardings=shardings.thaw(),
  )
  begin = time.perf_counter()
  # The mesh is for `sharding.gather`.
  mesh = jax.tree.leaves(shardings.thaw())[0].mesh
  with jax.set_mesh(mesh):
    compiled = jitted.lower(*arguments.thaw()).compile()
  return compiled, time.perf_counter() - begin
