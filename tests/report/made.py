"""Generations and a benchmark made by hand."""

import math

from specdec_jax.bench.cells import grid
from specdec_jax.bench.summary import (
  CellSummary,
  Difference,
  Figures,
  Identity,
  Prediction,
  Spread,
  StepTime,
  Summary,
  VerifyCurve,
  VerifyPass,
)
from specdec_jax.results import Completion
from specdec_jax.stats import Stats
from specdec_jax.trace import Block


class Vocabulary:
  """The part of a tokenizer that pages need."""

  special_ids = frozenset({0})

  def __init__(self, *tokens):
    self.token_bytes = (b"", *tokens)

  def name(self, token):
    return "<eos>" if token == 0 else ""

  def decode(self, ids):
    return b"".join(self.token_bytes[i] for i in ids).decode(errors="replace")


def block(drafts, kept, token, q=0.5, p=0.25):
  count = len(drafts)
  return Block(
    drafts=tuple(drafts),
    target_log_probs=(math.log(p),) * count,
    draft_log_probs=None if q is None else (math.log(q),) * count,
    overlaps=None if q is None else (0.75,) * count,
    kept=kept,
    token=token,
    token_log_prob=None if token is None else math.log(p),
  )


def completion(vocabulary, blocks, finish_reason="length"):
  tokens, drafted = [], []
  for it in blocks:
    own = [] if it.token is None else [it.token]
    tokens += [*it.drafts[: it.kept], *own]
    drafted += [True] * it.kept + [False] * len(own)
  longest = max(len(it.drafts) for it in blocks)
  places = range(longest)
  return Completion(
    tokens=tokens,
    pieces=[vocabulary.decode([token]) for token in tokens],
    finish_reason=finish_reason,
    drafted=drafted,
    log_probs=None,
    blocks=blocks,
    stats=Stats(
      len(tokens),
      len(blocks),
      tuple(sum(len(it.drafts) > k for it in blocks) for k in places),
      tuple(sum(it.kept > k for it in blocks) for k in places),
    ),
    seconds=1.0,
  )


def summary(temperatures=(0.0,), tasks=("code", "<b>$x$"), note="", plain=True):
  """A benchmark in which all figures follow from a, c and v."""
  cells = grid(
    drafters=["model", "lookup"],
    rules=["token", "block"],
    num_draft_tokens=[2, 4],
    temperatures=temperatures,
    batch_sizes=[1],
  )
  header = {
    "format": 1,
    "note": note,
    "pair": {"target": "big", "draft": "small", "dtype": "bfloat16"},
    "machine": {"cpu": "a CPU", "devices": "1 x cpu"},
    "prompts": {"count": 8, "tasks": dict.fromkeys(tasks, 4)},
  }
  return Summary(
    header=header,
    cells=tuple(_cell(it, tasks) for it in cells if plain or not it.is_plain),
    curves=(
      VerifyCurve(
        1, 512, tuple(VerifyPass(t, 0.04 * t**0.2, t**0.2) for t in (1, 3, 5))
      ),
    ),
    memory="the resident set",
  )


def _cell(cell, tasks):
  count = cell.num_draft_tokens
  cost = (count + 1) ** 0.2
  identity = None
  if cell.temperature == 0 and not cell.is_plain:
    identity = Identity(7, (Difference("a", 3, 1e-4, True),))
  total = _figures(None, cell, cost)
  prediction = None
  if not cell.is_plain:
    speedup = total.total_speedup
    prediction = Prediction(
      0.5, 0.1, cost, 2.0, 1.1 * speedup, 0.1, speedup, 0.0
    )
  return CellSummary(
    cell,
    total,
    tuple(_figures(task, cell, cost) for task in tasks),
    _time(count),
    prediction,
    identity,
    2**30,
  )


def _time(count):
  step, parts = 0.05 + 0.01 * count, (0.01 * count, 0.04, 0.001)
  return StepTime(step, *parts, overhead=step / sum(parts) - 1)


def _figures(task, cell, cost):
  count = cell.num_draft_tokens
  kept = tuple(2 ** (10 - place) for place in range(1, count + 1))
  tau = 1 + sum(kept) / 1024
  speedup = None if cell.is_plain else tau / cost
  rate = Spread(20.0 * (speedup or 1), 18.0, 60.0)
  return Figures(
    task,
    8,
    1000,
    rate,
    rate,
    Spread(0.1, 0.1, 0.2),
    tau,
    sum(kept) / 1024 / count if count else None,
    (1024,) * count,
    kept,
    speedup and Spread(speedup, 0.9 * speedup, 1.1 * speedup),
    speedup,
    speedup and cost,
  )
