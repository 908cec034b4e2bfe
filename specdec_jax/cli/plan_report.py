"""What a plan says: tables for people, JSON for programs."""

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from specdec_jax.cli.terminal import Terminal
from specdec_jax.models.transformer import TransformerNetwork
from specdec_jax.plan.fit import RESERVED_SHARE, Memory
from specdec_jax.plan.hlo import Collective
from specdec_jax.plan.planner import Pass, Plan
from specdec_jax.plan.roofline import (
  ACCEPTANCES,
  DRAFT_LENGTHS,
  Prediction,
  tokens_per_block,
)
from specdec_jax.visible import sanitize

_DEPTHS = ("outside the loop", "in a block", "in the loops of a block")
_NOTES = (
  "time = max(traffic / HBM bandwidth, FLOPs / peak) + transfers; a ring of n "
  "chips moves V bytes in max(V (n-1)/n / link, n/2 us), twice for an "
  "all-reduce",
  "tokens of a block = (1 - a^(K+1)) / (1 - a), Leviathan et al., arXiv "
  "2211.17192, equation (1), if each draft stays with probability a",
  "speedup = tokens of a block x plain / (K x draft + verify(K + 1)); between "
  "compiled T each part of a pass is interpolated",
  "traffic is what the compiled pass moves to and from HBM; needed are weights "
  "and caches, read once",
)
Names = tuple[str, str]


def notes(plan: Plan, names: Names) -> Iterator[str]:
  """What a reader of the figures should know."""
  request, pair = plan.request, plan.pair
  sizes = request.target.vocab_size, request.draft.vocab_size
  if sizes[0] != sizes[1]:
    yield (
      f"the configs have {sizes[0]} and {sizes[1]} tokens; taken for both: "
      f"{min(sizes)}"
    )
  for name, model in (("target", pair.target), ("draft", pair.draft)):
    network = model.network
    assert isinstance(network, TransformerNetwork)
    split = plan.mesh[1]
    if not network.split:
      yield f"the {name} lies whole on each device"
      continue
    for what, count in (
      ("query heads", network.config.num_heads),
      ("key-value heads", network.config.num_kv_heads),
    ):
      if count % split:
        yield (
          f"the {name}'s {count} {what} do not divide over {split} devices: "
          "each lies on several"
        )
    if request.context_length > network.max_length:
      yield (
        f"{request.context_length} tokens are more than the {name} was made "
        f"for, {network.max_length}"
      )
  if plan.topology.chip.devices > 1:
    yield (
      f"a chip of {plan.topology.chip.name} is {plan.topology.chip.devices} "
      "devices; figures are of one device"
    )
  if plan.passes:
    yield (
      "passes are compiled with 4 and with 6 layers and extrapolated to all of "
      "them; the generation is compiled whole, for its memory"
    )
    yield (
      "sampling, acceptance and the host are not in the times, and transfers "
      "go around one ring: estimates, not measurements"
    )


def show(plan: Plan, names: Names, terminal: Terminal) -> None:
  """Prints the tables."""
  line = terminal.line
  request, bucket = plan.request, plan.pair.bucket
  line(
    f"{sanitize(names[0])} with {sanitize(names[1])} on {plan.topology.name}, "
    f"mesh data:{plan.mesh[0]},model:{plan.mesh[1]}"
  )
  line(
    f"{bucket.batch} rows of {request.context_length} tokens "
    f"({bucket.slots} slots), K = {request.num_draft_tokens}, {request.dtype}"
    + (f", weights in {request.quantize}" if request.quantize else "")
  )
  line()
  _show_memory(plan, line)
  if plan.program is not None:
    line()
    line("transfers of the whole generation, by where they stand")
    terminal.table(_transfers(plan.program.collectives))
    line(f"compiled in {plan.program.seconds:.0f} s")
  if plan.prediction is not None:
    line()
    _show_passes(plan.passes, line)
    line()
    _show_speedups(plan.prediction, line)
    line()
    for note in _NOTES:
      line(note)
  for note in notes(plan, names):
    terminal.note(note)


def _show_memory(plan: Plan, line: Any) -> None:
  memory = plan.memory
  line("memory of a device               GiB")
  for name, size in memory.kinds.items():
    line(f"  {name:<28}{_gib(size):>6}")
  line(f"  {'total':<28}{_gib(memory.total):>6}")
  line(
    f"  {'room':<28}{_gib(memory.capacity):>6}  ({RESERVED_SHARE:.0%} less "
    f"than the {_gib(memory.capacity + memory.reserved)} that a program may "
    "have: for prefill and the runtime)"
  )
  if memory.fits:
    line(f"it fits, with {_gib(-memory.excess)} GiB to spare")
    return
  line(f"it does not fit: {_gib(memory.excess)} GiB too much")
  if not memory.compiled:
    line("  (temporaries come on top: it was not compiled)")
  found = plan.remedies
  assert found is not None
  line("what would:")
  more = "no larger slice of its kind"
  if found.larger is not None:
    topology, (data, model) = found.larger
    more = f"{topology.name}, mesh data:{data},model:{model}"
  line(f"  more chips       {more}")
  shorter = f"{found.context_length} tokens" if found.context_length else "none"
  line(f"  shorter context  {shorter}")
  if found.int8_total is not None:
    verdict = "fits" if found.int8_fits else "does not fit either"
    line(f"  --quantize=int8  {_gib(found.int8_total)} GiB, {verdict}")


def _transfers(found: Iterable[Collective]) -> Iterator[tuple[str, str]]:
  counts: dict[int, collections.Counter[str]] = collections.defaultdict(
    collections.Counter
  )
  sizes: collections.Counter[int] = collections.Counter()
  for it in found:
    depth = min(it.depth, len(_DEPTHS) - 1)
    counts[depth][f"{it.kind} over {it.axis or 'some devices'}"] += int(
      it.count
    )
    sizes[depth] += int(it.count * it.size)
  for depth, name in enumerate(_DEPTHS):
    told = ", ".join(f"{n} {kind}" for kind, n in counts[depth].most_common())
    size = f"; {sizes[depth] / 1e6:,.1f} MB" if told else ""
    yield f"  {name}", (told or "none") + size


def _show_passes(passes: Sequence[Pass], line: Any) -> None:
  line("passes of a device, each of T tokens a row; milliseconds at best")
  line(
    f"  {'':<8}{'T':>3}{'traffic MB':>12}{'(needed)':>10}{'GFLOP':>9}"
    f"{'transfers':>11}{'HBM':>8}{'compute':>9}{'links':>7}{'in all':>8}"
    "  bound by"
  )
  for it in passes:
    count = sum(c.count for c in it.cost.collectives)
    line(
      f"  {it.name:<8}{it.tokens:>3}{it.cost.traffic / 1e6:>12,.0f}"
      f"{it.least / 1e6:>10,.0f}{it.cost.flops / 1e9:>9,.1f}{count:>11,.0f}"
      f"{it.time.memory * 1e3:>8.2f}{it.time.compute * 1e3:>9.2f}"
      f"{it.time.transfers * 1e3:>7.2f}{it.time.total * 1e3:>8.2f}"
      f"  {it.time.bound}"
    )


def _show_speedups(prediction: Prediction, line: Any) -> None:
  line(
    "speedup at best over plain decoding, "
    f"{prediction.tokens_per_second(0, 0):,.0f} tokens/s; * marks the best K"
  )
  heads = "".join(f"{f'K={length}':>7}" for length in DRAFT_LENGTHS)
  line(f"  acceptance{heads}  tokens/s")
  for acceptance in ACCEPTANCES:
    best = prediction.best_length(acceptance)
    cells = "".join(
      f"{prediction.speedup(acceptance, length):>6.2f}"
      f"{'*' if length == best else ' '}"
      for length in DRAFT_LENGTHS
    )
    rate = prediction.tokens_per_second(acceptance, best)
    line(f"  {acceptance:>10.2f}{cells}{rate:>10,.0f}")


def fields(plan: Plan, names: Names) -> dict[str, Any]:
  """What a program wants to know of a plan."""
  request, bucket, memory = plan.request, plan.pair.bucket, plan.memory
  return {
    "target": names[0],
    "draft": names[1],
    "topology": plan.topology.name,
    "mesh": {"data": plan.mesh[0], "model": plan.mesh[1]},
    "batch_size": request.batch_size,
    "context_length": request.context_length,
    "slots": bucket.slots,
    "num_draft_tokens": request.num_draft_tokens,
    "dtype": request.dtype,
    "quantize": request.quantize,
    "draft_sharding": _layout(plan),
    "fits": memory.fits,
    "memory": _memory_fields(memory),
    "remedies": _remedies_fields(plan),
    "collectives": [
      dataclasses.asdict(it)
      for it in (plan.program.collectives if plan.program else ())
    ],
    "donated_bytes": plan.program.donated if plan.program else None,
    "passes": [_pass_fields(it) for it in plan.passes],
    "speedups": _speedup_fields(plan.prediction),
    "plain_tokens_per_second": plan.prediction
    and plan.prediction.tokens_per_second(0, 0),
    "compile_seconds": plan.seconds,
    "notes": list(notes(plan, names)),
  }


def _layout(plan: Plan) -> str:
  network = plan.pair.draft.network
  assert isinstance(network, TransformerNetwork)
  return "model" if network.split else "replicated"


def _memory_fields(memory: Memory) -> dict[str, Any]:
  return {
    "bytes": dict(memory.kinds),
    "total": memory.total,
    "capacity": memory.capacity,
    "reserved": memory.reserved,
    "excess": max(memory.excess, 0),
  }


def _remedies_fields(plan: Plan) -> dict[str, Any] | None:
  found = plan.remedies
  if found is None:
    return None
  topology, mesh = found.larger or (None, (None, None))
  return {
    "topology": topology and topology.name,
    "mesh": {"data": mesh[0], "model": mesh[1]},
    "context_length": found.context_length,
    "int8_total": found.int8_total,
    "int8_fits": found.int8_fits,
  }


def _pass_fields(it: Pass) -> dict[str, Any]:
  return {
    "pass": it.name,
    "tokens": it.tokens,
    "traffic_bytes": it.cost.traffic,
    "needed_bytes": it.least,
    "flops": it.cost.flops,
    "collectives": [dataclasses.asdict(c) for c in it.cost.collectives],
    "seconds": {**it.time._asdict(), "total": it.time.total},
    "bound_by": it.time.bound,
  }


def _speedup_fields(prediction: Prediction | None) -> list[dict[str, Any]]:
  if prediction is None:
    return []
  return [
    {
      "acceptance": acceptance,
      "best_num_draft_tokens": prediction.best_length(acceptance),
      "by_num_draft_tokens": {
        str(length): {
          "tokens_per_block": tokens_per_block(acceptance, length),
          "speedup": prediction.speedup(acceptance, length),
          "tokens_per_second": prediction.tokens_per_second(acceptance, length),
        }
        for length in DRAFT_LENGTHS
      },
    }
    for acceptance in ACCEPTANCES
  ]


def _gib(size: int) -> str:
  return f"{size / 2**30:.2f}"
