"""Two processes on the CPU of this machine, each with a half of the weights."""

import os
import pathlib
import socket
import subprocess
import sys

import pytest

pytestmark = pytest.mark.real

# Prints the most memory that the process has had, in KiB.
_LOAD = """
import resource, sys
import jax

source, where, count, index = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
if count > 1:
  jax.distributed.initialize(where, count, index)
import specdec_jax as sd
from specdec_jax.sharding import make_mesh

model = sd.load(source, mesh=make_mesh(model=count))
for weight in model.params.values():
  assert len(weight.addressable_shards) == 1
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def _peaks(count: int) -> list[int]:
  """Loads the 1.5B in so many processes; the peak memory of each, in KiB."""
  source = pathlib.Path(os.environ["SPECDEC_MODELS"]) / "qwen2.5-coder-1.5b"
  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    where = f"127.0.0.1:{free.getsockname()[1]}"
  processes = [
    subprocess.Popen(
      [sys.executable, "-c", _LOAD, source, where, str(count), str(index)],
      stdout=subprocess.PIPE,
      text=True,
    )
    for index in range(count)
  ]
  # What Gloo says when it has connected comes before the number.
  told = [process.communicate()[0] for process in processes]
  assert [process.returncode for process in processes] == [0] * count
  return [int(out.splitlines()[-1]) for out in told]


def test_each_process_holds_its_shards_only():
  (alone,), together = _peaks(1), _peaks(2)
  assert max(together) <= 0.75 * alone, (alone, together)
