"""`specdec bench`: how fast a pair is here, and with which settings."""

import datetime
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from specdec_jax.bench import machine, measure, summarize, workload
from specdec_jax.bench.cells import Cell
from specdec_jax.bench.measure import Meter, Prompt, Unit
from specdec_jax.bench.peak import Peak
from specdec_jax.bench.store import Store
from specdec_jax.bench.summary import Summary
from specdec_jax.bench.ways import Way
from specdec_jax.cli import bench_options, bench_report, command
from specdec_jax.cli.bench_options import PAIR, Options
from specdec_jax.cli.terminal import Terminal
from specdec_jax.models.language_model import LanguageModel
from specdec_jax.prompts import check_request, encode_all
from specdec_jax.sampling import SamplingParams

FAULTY = 1


def main(argv: Sequence[str]) -> int:
  """Runs the command; argv[0] is its name. Returns the exit code."""
  return command.run(argv[0], lambda: _bench(argv))


def _bench(argv: Sequence[str]) -> int:
  if not bench_options.parse(argv):
    return 0
  options = bench_options.read()
  _check_peer(options)
  shown = Terminal()
  store = Store(options.output, _header(options))
  began, now = store.header["commit"], machine.commit()
  if began != now:
    shown.note(f"begun at commit {began}, goes on at {now}")
  units = measure.units(options.cells, options.items)
  missing = [unit for unit in units if unit.number not in store.units]
  if store.units:
    shown.note(
      f"{options.output} holds {len(store.units)} of {len(units)} parts already"
    )
  interrupted = False
  if missing:
    interrupted = _measure(options, store, units, missing, shown)
    shown.status("")
  summary = summarize.summarize(store.header, store.records)
  if store.records:
    _show(options, summary, shown)
  if interrupted:
    kept = "; the same command goes on" if options.output else ""
    shown.note(f"interrupted{kept}")
    return command.INTERRUPTED
  return FAULTY if summary.faults else 0


def _header(options: Options) -> dict[str, Any]:
  """What is measured on what."""
  now = datetime.datetime.now(datetime.UTC)
  texts = [[item.name, item.task, item.text] for item in options.items]
  return {
    "begun": now.isoformat(timespec="seconds"),
    "note": options.note,
    "versions": machine.versions(peer=options.peer is not None),
    "commit": machine.commit(),
    "machine": machine.describe(),
    "memory": Peak().meaning,
    "pair": PAIR.pair_settings(),
    "settings": options.settings(),
    "prompts": {
      "count": len(options.items),
      "tasks": workload.tasks(options.items),
      "sha256": hashlib.sha256(json.dumps(texts).encode()).hexdigest(),
    },
    "cells": [cell.full_name for cell in options.cells],
  }


def _measure(
  options: Options,
  store: Store,
  units: Sequence[Unit],
  missing: Sequence[Unit],
  shown: Terminal,
) -> bool:
  """Measures what is missing; returns whether Ctrl-C came before the end."""
  try:
    target, draft = PAIR.load_models(shown, _needs_draft(options.cells))
    pair = PAIR.pair(target, draft)
    prompts = _encode(options, target)
    new_tokens = options.limits.max_new_tokens
    timed = measure.with_passes(pair, units, prompts, new_tokens)
    done = 0

    def status(text: str) -> None:
      unit = missing[done]
      name = options.items[unit.places[0]].name
      setting = f"temperature {unit.cells[0].temperature:g}"
      shown.status(f"{done + 1} of {len(missing)}: {setting}, {name}, {text}")

    meter = Meter(
      pair,
      prompts,
      limits=options.limits,
      rounds=options.rounds,
      seed=options.seed,
      peer=_peer_of(options),
      status=status,
    )
    for unit in missing:
      records = meter.measure(unit, unit.number in timed)
      with command.ctrl_c_waits():
        store.append(unit.number, records)
      done += 1
  except KeyboardInterrupt:
    return True
  return False


def _needs_draft(cells: Sequence[Cell]) -> bool:
  return any(cell.drafter == "model" for cell in cells)


def _encode(options: Options, target: LanguageModel) -> list[Prompt]:
  """The prompts as the target reads them.

  Raises:
    ValueError: one does not fit its context; it names the line.
  """
  prompts = []
  for item in options.items:
    message = {"role": "user", "content": item.text}
    try:
      (tokens,) = encode_all(
        [[message] if options.chat_template else item.text], target
      )
    except ValueError as error:
      reason = str(error).removeprefix("prompt 0: ")
      raise ValueError(f"{item.where}: {reason}") from error
    new, params = options.limits.max_new_tokens, SamplingParams()
    check_request(item.where, len(tokens), new, params, target)
    prompts.append(Prompt(item, tuple(tokens)))
  return prompts


def _check_peer(options: Options) -> None:
  """Checks what the other engine needs, before anything is measured.

  Raises:
    ValueError: it is not installed, or the models are in no folders.
  """
  if options.peer is None:
    return
  from specdec_jax.bench import peer

  peer.check_installed()
  PAIR.folder("target")
  if _needs_draft(options.cells):
    PAIR.folder("draft")


def _peer_of(options: Options) -> Callable[[Cell], Way] | None:
  """Loads the other engine.

  Raises:
    ValueError: it cannot read the models.
  """
  if options.peer is None:
    return None
  from specdec_jax.bench.peer import Transformers

  return Transformers(
    target=PAIR.folder("target"),
    draft=PAIR.folder("draft") if _needs_draft(options.cells) else None,
    dtype=PAIR.dtype,
    limits=options.limits,
    max_ngram=PAIR.drafter_arguments("lookup")["max_ngram"],
  ).way


def _show(options: Options, summary: Summary, shown: Terminal) -> None:
  if options.json:
    shown.line(json.dumps(summary.to_dict(), allow_nan=False))
  else:
    bench_report.show(summary, shown)
  if options.suggest and not options.json:
    shown.line()
    for line in bench_report.suggestions(summary, PAIR.given()):
      shown.line(line)
  if options.report is not None:
    _write_page(options.report, summary)


def _write_page(path: Path, summary: Summary) -> None:
  from specdec_jax.report import bench_page

  path.write_text(bench_page(summary), encoding="utf-8")
