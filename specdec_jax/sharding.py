"""Where arrays live: mesh axes, and one rule for each logical axis.

The mesh has two axes: `data` splits the rows of a batch, `model` splits heads,
mlp width and vocabulary. JAX sees `model` as one axis for each prime factor of
its size, so that what does not divide over all devices is divided over some:
of 8 key-value heads on 16 devices each lies on two, not all on every one.

Axes are of type Auto: shardings are put on weights, cache and inputs, and the
compiler places the collectives.
"""

from collections.abc import Mapping, Sequence

import jax
import numpy as np
from jax import lax
from jax.experimental import mesh_utils
from jax.sharding import (
  AbstractMesh,
  AxisType,
  Mesh,
  NamedSharding,
  PartitionSpec,
)

from specdec_jax.types import Array, PyTree

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
# The axes of a cache array, `[B, M, S, H]`: of one that is split as attention
# is, and of one that every device of the `model` axis has.
SPLIT_CACHE = ("batch", "kv_heads", "slots", "head_dim")
WHOLE_CACHE = ("batch", None, "slots", "head_dim")

# Vocabularies that are split are rounded up to a multiple of this for each
# device: a tile of a TPU, and the block in which tokens are drawn.
VOCAB_TILE = 128
_MANY_TILES = 16  # of fewer the padding would be a large part

# How the weights of a model may lie on the `model` axis.
LAYOUTS = ("model", "replicated", "auto")
# Of a TPU: bytes per second from memory, and seconds that a sum over n devices
# waits for each of them. https://jax-ml.github.io/scaling-book
_BANDWIDTH, _HOP = 1e12, 1e-6


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
    # Lets JAX order the chips after the interconnect, whose axes need not be
    # ours.
    ordered = mesh_utils.create_device_mesh(
      (data, model), found, allow_split_physical_axes=True
    )
  else:
    ordered = np.array(found[:count])
  axes = _axes(data, model)
  return Mesh(
    ordered.reshape(tuple(axes.values())),
    tuple(axes),
    axis_types=(AxisType.Auto,) * len(axes),
  )


def abstract_mesh(data: int, model: int) -> AbstractMesh:
  """Stands for a mesh: one without devices can tell what lies where."""
  axes = _axes(data, model)
  return AbstractMesh(
    tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes)
  )


def _axes(data: int, model: int) -> dict[str, int]:
  """The axes that JAX sees, and their sizes."""
  axes = {DATA: data}
  factor = 2
  while model > 1:
    while model % factor == 0:
      axes[f"{MODEL}{len(axes) - 1}"] = factor
      model //= factor
    factor += 1
  return axes


def sizes(mesh: Mesh | AbstractMesh) -> dict[str, int]:
  """How many ways each of the two axes splits."""
  ways = mesh.shape[DATA]
  return {DATA: ways, MODEL: mesh.size // ways}


def vocab_rows(size: int, mesh: Mesh | AbstractMesh) -> int:
  """V for a tokenizer of `size` tokens: what the mesh can split.

  The tokens that are added have no probability.
  """
  step = sizes(mesh)[MODEL]
  if step > 1 and size >= _MANY_TILES * VOCAB_TILE * step:
    step *= VOCAB_TILE
  return -(-size // step) * step


def check_layout(layout: str) -> None:
  """Raises ValueError for what is none of `LAYOUTS`."""
  if layout not in LAYOUTS:
    raise ValueError(
      f"layout: expected one of {', '.join(LAYOUTS)}, got {layout!r}"
    )


def is_split(
  layout: str, weight_bytes: int, layers: int, mesh: Mesh | AbstractMesh
) -> bool:
  """Whether a model's weights are split over the `model` axis.

  Args:
    layout: one of `LAYOUTS`: split, whole on each device, or what takes a TPU
      less time for a pass. That reads the weights, or a part of them but sums
      over the devices twice a layer.
    weight_bytes: of all weights.
    layers: L.
    mesh: the mesh.
  """
  if layout != "auto":
    return layout == "model"
  ways = sizes(mesh)[MODEL]
  read = weight_bytes / _BANDWIDTH
  return read / ways + 2 * layers * ways * _HOP < read


def param_spec(
  axes: Sequence[str | None],
  units: Sequence[int],
  mesh: Mesh | AbstractMesh,
) -> PartitionSpec:
  """The spec of an array whose dimensions have these logical axes.

  Args:
    axes: one logical axis for each dimension.
    units: how many units the axis may be cut into, for each dimension: the
      dimension itself, or the number of heads where cutting a head in two
      would be wrong. What does not divide over all devices is divided over as
      many as it can be, and the others have copies.
    mesh: the mesh.

  Raises:
    ValueError: an axis has no rule.
  """
  spec: list[tuple[str, ...] | None] = []
  for axis, count in zip(axes, units, strict=True):
    if axis is not None and axis not in RULES:
      raise ValueError(f"no sharding rule for axis {axis!r}: {sorted(RULES)}")
    rule = None if axis is None else RULES[axis]
    spec.append(None if rule is None else _cut(count, rule, mesh))
  return PartitionSpec(*spec)


def _cut(
  count: int, rule: str, mesh: Mesh | AbstractMesh
) -> tuple[str, ...] | None:
  """The axes of JAX that a dimension of `count` units is cut over."""
  over = []
  for name, ways in mesh.shape.items():
    if name.startswith(rule) and ways > 1 and count % ways == 0:
      count //= ways
      over.append(name)
  return tuple(over) or None


def batch_spec(batch: int, mesh: Mesh | AbstractMesh) -> PartitionSpec:
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


def gather(array: Array) -> Array:
  """Has each device hold the last axis of an array, in a program.

  For what is small: nothing that is made of it needs a transfer then, while
  each of its steps would need several. Does nothing without a mesh.
  """
  if jax.sharding.get_abstract_mesh().empty:
    return array
  free = (PartitionSpec.UNCONSTRAINED,) * (array.ndim - 1)
  return lax.with_sharding_constraint(array, PartitionSpec(*free, None))


def of_rows(
  mesh: Mesh, shapes: PyTree, cache_axes: Sequence[str | None] = SPLIT_CACHE
) -> PyTree:
  """Where each leaf of a decode state lies, given its shape.

  All of them lead with B. Those of four axes are caches.

  Args:
    mesh: the mesh.
    shapes: the leaves.
    cache_axes: of a cache: `SPLIT_CACHE` or `WHOLE_CACHE`.
  """

  def place(leaf: jax.ShapeDtypeStruct) -> NamedSharding:
    batch, *rest = leaf.shape
    if len(rest) == 3 and cache_axes:
      spec = param_spec(cache_axes, (batch, rest[0], 1, 1), mesh)
    else:
      spec = batch_spec(batch, mesh)
    return NamedSharding(mesh, spec)

  return jax.tree.map(place, shapes)
