"""Records as a benchmark writes them, and the pair that tests measure."""

import numpy as np

from specdec_jax.bench.cells import GREEDY, OURS, Cell
from specdec_jax.bench.records import PassTimes, RunRecord
from specdec_jax.bench.ways import Pair
from specdec_jax.testing import table_model

PLAIN = Cell(0.0, 1, OURS, "none", GREEDY, 0)
MODEL = Cell(0.0, 1, OURS, "model", GREEDY, 2)


def record(cell, prompt="p", **values):
  """A run of 12 tokens in a second, or in 4 passes in half a second."""
  is_plain = cell.is_plain
  fields = {
    "cell": cell,
    "task": "t",
    "prompts": (prompt,),
    "round": 0,
    "slots": 64,
    "new_tokens": 12,
    "row_passes": 12 if is_plain else 4,
    "drafted": () if is_plain else (4, 4),
    "accepted": () if is_plain else (4, 4),
    "prefill": 0.25,
    "first_token": 0.3,
    "decode": 1.0 if is_plain else 0.5,
    "decode_tokens": 12,
    "steps": 12 if is_plain else 4,
    "compile": 0.0,
    "peak_bytes": 100,
    "finish_reasons": ("length",),
    "compared": 0 if is_plain else 1,
    "differences": (),
    "passes": PassTimes(64, 0.0, 1 / 12, 0.0)
    if is_plain
    else PassTimes(64, 0.02, 0.1, 0.0),
  }
  return RunRecord(**(fields | values))


def pair():
  """A target and a draft that guesses right now and then."""
  rng = np.random.default_rng(0)
  table_VVV = rng.dirichlet(np.ones(8), (8, 8))
  other_VVV = rng.dirichlet(np.ones(8), (8, 8))
  return Pair(
    table_model(table_VVV), table_model(0.45 * table_VVV + 0.55 * other_VVV)
  )
