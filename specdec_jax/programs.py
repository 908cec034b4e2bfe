"""Compiles programs once, and tells how long that took."""

import functools
import time
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import jax

from specdec_jax.types import PyTree


class Program(NamedTuple):
  """A compiled program.

  Attributes:
    call: takes the arguments it was compiled for.
    seconds: what compiling it took; 0 when it was there already.
  """

  call: Callable[..., Any]
  seconds: float


def state_program(
  function: Callable[..., PyTree],
  static: tuple[Hashable, ...],
  weights: PyTree,
  state: PyTree,
  *values: PyTree,
) -> Program:
  """Compiles `function(*static, weights, state, *values) -> state`.

  The state is donated and keeps its shardings, so the result can be fed to the
  next call. Values may be numpy's: they go where the rest is. Programs are kept
  and shared: the same function is compiled once in a process for the same
  shapes.
  """
  leaves, tree = jax.tree.flatten((weights, state, *values))
  shapes = tuple(
    jax.ShapeDtypeStruct(
      leaf.shape, leaf.dtype, sharding=getattr(leaf, "sharding", None)
    )
    for leaf in leaves
  )
  misses = _compile.cache_info().misses
  call, seconds = _compile(function, static, tree, shapes)
  was_there = _compile.cache_info().misses == misses
  return Program(call, 0.0 if was_there else seconds)


@functools.lru_cache(maxsize=256)
def _compile(
  function: Callable[..., PyTree],
  static: tuple[Hashable, ...],
  tree: jax.tree_util.PyTreeDef,
  shapes: tuple[jax.ShapeDtypeStruct, ...],
) -> tuple[jax.stages.Compiled, float]:
  weights, state, *values = jax.tree.unflatten(tree, shapes)
  jitted = jax.jit(
    functools.partial(function, *static),
    donate_argnums=1,
    out_shardings=jax.tree.map(lambda leaf: leaf.sharding, state),
  )
  start = time.perf_counter()
  compiled = jitted.lower(weights, state, *values).compile()
  return compiled, time.perf_counter() - start


def create_state(
  function: Callable[..., PyTree],
  static: tuple[Hashable, ...],
  shardings: PyTree,
  **fields: PyTree,
) -> PyTree:
  """Makes `function(*static, **fields) -> state` right where it belongs.

  Args:
    function: makes the state.
    static: its static arguments.
    shardings: where each leaf of the state shall lie.
    **fields: its other arguments, arrays.
  """
  leaves, tree = jax.tree.flatten(shardings)
  return _creator(function, static, tree, tuple(leaves))(**fields)


@functools.lru_cache(maxsize=256)
def _creator(
  function: Callable[..., PyTree],
  static: tuple[Hashable, ...],
  tree: jax.tree_util.PyTreeDef,
  leaves: tuple[jax.sharding.Sharding, ...],
) -> Callable[..., PyTree]:
  return jax.jit(
    functools.partial(function, *static),
    out_shardings=jax.tree.unflatten(tree, leaves),
  )
