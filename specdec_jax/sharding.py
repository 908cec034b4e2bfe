"""Where arrays live: mesh axes, and one rule for each logical axis.

The mesh has two axes: `data` splits the rows of a batch, `model` splits heads,
mlp width and vocabulary. Axes are of type Auto: shardings are put on weights,
cache and inputs, and the compiler places the collectives.
"""

from collections.abc import Mapping, Sequence

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from specdec_jax.types import PyTree

DATA = "data"
MODEL = "model"

# Logical axis of an array -> mesh axis; None is replicated.
RULES: Mapping[str, str | None] = {
  "batch": DATA,
  "vocab": MODEL,
  "draft_vocab": None,
  "embed": None,
  "mlp": MODEL,
  "heads": MODEL,
  "kv_heads": MODEL,
  "head_dim": None,
  "slots": None,
}


def make_mesh(
  data: int = 1,
  model: int = 1,
  devices: Sequence[jax.Device] | None = None,
) -> Mesh:
  """Makes a `(data, model)` mesh, by default of one device.

  Args:
    data: how many ways the batch is split.
    model: how many ways weights and heads are split.
    devices: which devices; the first `data * model` of the process's devices
      when None.

  Raises:
    ValueError: there are too few devices.
  """
  if data < 1 or model < 1:
    raise ValueError(f"a mesh needs sizes of 1 or more, got {data}x{model}")
  count = data * model
  found = list(jax.devices() if devices is None else devices)
  if len(found) < count:
    raise ValueError(
      f"a {data}x{model} mesh needs {count} devices, {len(found)} found"
    )
  if devices is None and len(found) == count:
    # Lets JAX order the chips after the interconnect.
    return jax.make_mesh((data, model), (DATA, MODEL), (AxisType.Auto,) * 2)
  return Mesh(
    np.array(found[:count]).reshape(data, model),
    (DATA, MODEL),
    axis_types=(AxisType.Auto,) * 2,
  )


def param_spec(
  axes: Sequence[str | None],
  sizes: Sequence[int],
  mesh: Mesh,
) -> PartitionSpec:
  """The spec of an array whose dimensions have these logical axes.

  Args:
    axes: one logical axis for each dimension.
    sizes: how many units the axis may be cut into, for each dimension: the
      dimension itself, or the number of heads where cutting a head in two
      would be wrong. An axis that does not divide is replicated.
    mesh: the mesh.

  Raises:
    ValueError: an axis has no rule.
  """
  spec: list[str | None] = []
  for axis, size in zip(axes, sizes, strict=True):
    if axis is not None and axis not in RULES:
      raise ValueError(f"no sharding rule for axis {axis!r}: {sorted(RULES)}")
    name = None if axis is None else RULES[axis]
    spec.append(name if name and size % mesh.shape[name] == 0 else None)
  return PartitionSpec(*spec)


def cache_spec(batch: int, kv_heads: int, mesh: Mesh) -> PartitionSpec:
  """The spec of a cache array `[B, M, S, H]`."""
  axes = ("batch", "kv_heads", "slots", "head_dim")
  return param_spec(axes, (batch, kv_heads, 1, 1), mesh)


def batch_spec(batch: int, mesh: Mesh) -> PartitionSpec:
  """The spec of an array that leads with B; the other axes are replicated."""
  return param_spec(("batch",), (batch,), mesh)


def put_rows(array: jax.typing.ArrayLike, mesh: Mesh) -> jax.Array:
  """Puts an array that leads with B where its rows belong."""
  array = np.asarray(array)
  return jax.device_put(
    array, NamedSharding(mesh, batch_spec(len(array), mesh))
  )


def replicate(array: jax.typing.ArrayLike, mesh: Mesh) -> jax.Array:
  """A copy on each device."""
  return jax.device_put(array, NamedSharding(mesh, PartitionSpec()))


def of_state(mesh: Mesh, shapes: PyTree) -> PyTree:
  """Where each leaf of a decode state lies, given its shape.

  All of them lead with B. Those of four axes are caches, `[B, M, S, H]`.
  """

  def place(leaf: jax.ShapeDtypeStruct) -> NamedSharding:
    batch, *rest = leaf.shape
    spec = (
      cache_spec(batch, rest[0], mesh)
      if len(rest) == 3
      else batch_spec(batch, mesh)
    )
    return NamedSharding(mesh, spec)

  return jax.tree.map(place, shapes)
