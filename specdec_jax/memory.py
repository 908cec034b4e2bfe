"""How much memory a state needs, and whether there is that much."""

import jax
import numpy as np

from specdec_jax.types import PyTree


def free_bytes(device: jax.Device) -> int | None:
  """Free memory of a device; None where it cannot be told."""
  stats = device.memory_stats()
  if stats and "bytes_limit" in stats:
    return stats["bytes_limit"] - stats.get("bytes_in_use", 0)
  if device.platform != "cpu":
    return None
  try:
    with open("/proc/meminfo", encoding="ascii") as file:
      fields = dict(line.split(":", 1) for line in file)
    return int(fields["MemAvailable"].split()[0]) * 1024
  except (OSError, KeyError):
    return None


def bytes_per_device(shapes: PyTree, shardings: PyTree) -> int:
  """Bytes that each device holds of arrays of these shapes."""

  def held(leaf, where):
    return int(np.prod(where.shard_shape(leaf.shape))) * leaf.dtype.itemsize

  return sum(jax.tree.leaves(jax.tree.map(held, shapes, shardings)))


def check_fits(
  shapes: PyTree, shardings: PyTree, rows: int, slots: int, device: jax.Device
) -> None:
  """Refuses a state that does not fit, before anything is compiled.

  Args:
    shapes: the state's shapes.
    shardings: and where each would lie.
    rows: B.
    slots: S.
    device: one of the devices it would lie on.

  Raises:
    ValueError: it says how much is needed and free, and what would fit.
  """
  needed, free = bytes_per_device(shapes, shardings), free_bytes(device)
  if free is None or needed <= free:
    return
  share = free / needed
  fits = []
  if int(rows * share):
    fits.append(f"a batch of {int(rows * share)} rows of this length")
  if int(slots * share):
    fits.append(f"{int(slots * share)} tokens for each of {rows} rows")
  raise ValueError(
    f"cache: {rows} rows of {slots} tokens need {_gib(needed)} on each device, "
    f"but {_gib(free)} are free on {device}; what would fit: "
    f"{', or '.join(fits) or 'nothing'}"
  )


def _gib(count: int) -> str:
  return f"{count / 2**30:.2f} GiB"
