"""How much memory a state needs, and whether there is that much."""

import pathlib

import jax
import numpy as np

from specdec_jax import buckets
from specdec_jax.types import PyTree

_CGROUP = pathlib.Path("/sys/fs/cgroup")


def free_bytes(device: jax.Device) -> int | None:
  """Free memory of a device; None where it cannot be told."""
  stats = device.memory_stats()
  if stats and "bytes_limit" in stats:
    return stats["bytes_limit"] - stats.get("bytes_in_use", 0)
  if device.platform != "cpu":
    return None
  found = [
    free for free in (_of_machine(), _of_container()) if free is not None
  ]
  return min(found, default=None)


def _of_machine() -> int | None:
  """What Linux would give to a new program."""
  try:
    return _fields(pathlib.Path("/proc/meminfo"))["MemAvailable:"] * 1024
  except (OSError, KeyError, ValueError):
    return None


def _of_container() -> int | None:
  """What is left of a cgroup's limit; files in memory make room."""
  try:
    limit = int((_CGROUP / "memory.max").read_text())
    used = int((_CGROUP / "memory.current").read_text())
    files = _fields(_CGROUP / "memory.stat")["inactive_file"]
    return max(limit - used + files, 0)
  except (OSError, KeyError, ValueError):
    return None  # no cgroup, or no limit: "max"


def _fields(path: pathlib.Path) -> dict[str, int]:
  """The numbers of a file of lines like `name 123 kB`."""
  lines = (line.split() for line in path.read_text().splitlines())
  return {line[0]: int(line[1]) for line in lines if len(line) > 1}


def bytes_per_device(shapes: PyTree, shardings: PyTree) -> int:
  """Bytes that each device holds of arrays of these shapes."""

  def held(leaf: jax.ShapeDtypeStruct, where: jax.sharding.Sharding) -> int:
    return int(np.prod(where.shard_shape(leaf.shape))) * leaf.dtype.itemsize

  return sum(jax.tree.leaves(jax.tree.map(held, shapes, shardings)))


def check_fits(
  shapes: PyTree,
  shardings: PyTree,
  bucket: buckets.Bucket,
  mesh: jax.sharding.Mesh,
) -> None:
  """Refuses a state that does not fit, before anything is compiled.

  Args:
    shapes: the state's shapes.
    shardings: and where each would lie.
    bucket: the rows and slots it is for.
    mesh: the devices.

  Raises:
    ValueError: it says how much is needed and free, and what would fit.
  """
  device = mesh.local_devices[0]
  needed, free = bytes_per_device(shapes, shardings), free_bytes(device)
  if free is None or needed <= free:
    return
  share = free / needed
  rows = buckets.batch_within(int(bucket.batch * share), bucket.shards)
  slots = buckets.slots_within(int(bucket.slots * share))
  fits = []
  if rows:
    fits.append(f"{rows} rows of this length")
  if slots:
    fits.append(f"{slots} slots for this many rows")
  raise ValueError(
    f"cache: {bucket.batch} rows of {bucket.slots} slots (prompt, new tokens "
    f"and drafts, rounded up) need {_gib(needed)} on each device, but "
    f"{_gib(free)} are free on {device}; what would fit: "
    f"{', or '.join(fits) or 'nothing'}"
  )


def _gib(count: int) -> str:
  return f"{count / 2**30:.2f} GiB"
