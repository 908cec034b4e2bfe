"""The flags that say over which devices models are spread."""

import re

import jax
from absl import flags
from jax.sharding import Mesh

from specdec_jax.sharding import DATA, LAYOUTS, MODEL, make_mesh


def define_mesh(values: flags.FlagValues) -> flags.FlagHolder[str | None]:
  """Defines --mesh; see `parse_mesh` for its value."""
  return flags.DEFINE_string(
    "mesh",
    None,
    "Several devices: data:2,model:4 splits the rows of a batch in 2 and the "
    "weights in 4. What is not named is not split.",
    flag_values=values,
  )


def define_draft_sharding(values: flags.FlagValues) -> flags.FlagHolder[str]:
  """Defines --draft_sharding: the layout of the draft, see `sd.load`."""
  return flags.DEFINE_enum(
    "draft_sharding",
    "auto",
    list(LAYOUTS),
    "Where the draft lies on a mesh: split as the target, or replicated, whole "
    "on each device; auto takes what costs a TPU less time.",
    flag_values=values,
  )


def parse_mesh(text: str | None) -> Mesh:
  """Makes the mesh that --mesh tells of; of one device if None.

  Raises:
    ValueError: the text is not understood, there are too few devices, or a
      process would have none of them.
  """
  sizes = parse_sizes(text)
  try:
    mesh = make_mesh(*sizes)
  except ValueError as error:
    raise ValueError(f"--mesh={text}: {error}") from error
  taking_part = {device.process_index for device in mesh.devices.flat}
  if len(taking_part) < jax.process_count():
    raise ValueError(
      f"--mesh: expected devices of each of the {jax.process_count()} "
      f"processes, which have {jax.device_count()} in all, got "
      f"{text or 'none'}, which takes {mesh.size}"
    )
  return mesh


def parse_sizes(text: str | None) -> tuple[int, int]:
  """The sizes of the axes `data` and `model` that --mesh tells of.

  Raises:
    ValueError: the text is not understood.
  """
  sizes: dict[str, int] = {}
  for part in [] if text is None else text.split(","):
    found = re.fullmatch(rf"({DATA}|{MODEL}):([1-9][0-9]{{0,5}})", part)
    if found is None or found[1] in sizes:
      raise ValueError(
        f"--mesh: expected {DATA}:N, {MODEL}:N or both with a comma, for "
        f"example {DATA}:2,{MODEL}:4, got {text!r}"
      )
    sizes[found[1]] = int(found[2])
  return sizes.get(DATA, 1), sizes.get(MODEL, 1)
