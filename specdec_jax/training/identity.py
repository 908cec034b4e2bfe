"""What a training is, so that nobody goes on with another one."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from specdec_jax.loading.source import read_json
from specdec_jax.training.files import write_whole


def recognize(path: Path, description: Mapping[str, Any]) -> None:
  """Writes down what a training is, or compares it with what is there.

  Args:
    path: the file, in the folder of the training.
    description: equal ones mean equal metrics.

  Raises:
    ValueError: the folder holds a training of another description.
  """
  ours = json.loads(json.dumps(description))
  if not path.is_file():
    write_whole(path, json.dumps(ours, indent=2).encode() + b"\n")
    return
  theirs = read_json(path)
  other = sorted(
    name
    for name in ours.keys() | theirs.keys()
    if ours.get(name) != theirs.get(name)
  )
  if other:
    raise ValueError(
      f"{path.parents[1]} holds another training: "
      + "; ".join(
        f"{name} was {theirs.get(name)!r}, now {ours.get(name)!r}"
        for name in other
      )
      + ". Use the same values to go on with it, or another folder"
    )


def digest(*arrays: Any) -> str:
  """What tells arrays from others."""
  hashed = hashlib.sha256()
  for array in arrays:
    hashed.update(np.ascontiguousarray(array).view(np.uint8))
  return hashed.hexdigest()[:16]
