"""From the devices to the host, also where processes share them."""

import functools

import jax
from jax.sharding import NamedSharding, PartitionSpec

from specdec_jax.types import PyTree


def to_host(tree: PyTree) -> PyTree:
  """Arrays as numpy's.

  Where parts of one lie with other processes, each of which must ask for the
  same, all of them are sent to all first. A single process sends nothing.
  """
  far = [leaf for leaf in jax.tree.leaves(tree) if not _is_here(leaf)]
  if far:
    tree = _sender(far[0].sharding.mesh)(tree)
  return jax.device_get(tree)


def _is_here(leaf: jax.Array) -> bool:
  return leaf.is_fully_addressable or leaf.is_fully_replicated


@functools.lru_cache(maxsize=8)
def _sender(mesh: jax.sharding.Mesh) -> jax.stages.Wrapped:
  """A program that copies arrays to all devices of a mesh."""
  everywhere = NamedSharding(mesh, PartitionSpec())
  return jax.jit(lambda tree: tree, out_shardings=everywhere)
