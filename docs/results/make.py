r"""Remakes this folder: the real pair, every setting, then the best ones.

  python docs/results/make.py --target=FOLDER --draft=FOLDER \
    --humaneval=HumanEval.jsonl --spec_bench=question.jsonl --work=FOLDER

Takes hours on a CPU. Each step is a `specdec bench` with a folder of its own in
--work; interrupted, the same command goes on. What is whole by then is written.
"""

import argparse
import json
import pathlib
import subprocess
import sys
from collections.abc import Sequence

from specdec_jax import report
from specdec_jax.bench import store, suggest
from specdec_jax.bench.cells import OURS
from specdec_jax.bench.summarize import summarize
from specdec_jax.bench.summary import CellSummary, Figures, Summary

HERE = pathlib.Path(__file__).parent
NOTE = "weights are Q4_K_M, dequantised to bfloat16"
TEMPERATURES = 0.0, 1.0
DRAFTERS = "model", "lookup"
SPEC_BENCH_PROMPTS = 60
SCREENED_PROMPTS = 10


def main(argv: Sequence[str]) -> None:
  """Measures what is missing, then writes the page."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  for name in ("target", "draft", "humaneval", "spec_bench", "work"):
    parser.add_argument(f"--{name}", required=True, type=pathlib.Path)
  parser.add_argument("--max_new_tokens", type=int, default=48)
  parser.add_argument("--peer", choices=["transformers"])
  parser.add_argument("--note", default=NOTE)
  options = parser.parse_args(argv)
  screen = measure(
    options,
    "screen",
    f"--prompts_file={options.humaneval}",
    f"--limit={SCREENED_PROMPTS}",
    f"--drafters={','.join(DRAFTERS)}",
    "--rules=token,block,gumbel",
    "--num_draft_tokens=2,3,4,5,6,7,8",
    f"--temperatures={','.join(f'{t:g}' for t in TEMPERATURES)}",
  )
  found = {"screen": screen}
  write(found)
  for name, *flags in (
    ("humaneval", f"--prompts_file={options.humaneval}"),
    (
      "spec_bench",
      f"--prompts_file={options.spec_bench}",
      f"--limit={SPEC_BENCH_PROMPTS}",
      "--chat_template",
    ),
  ):
    for best in finalists(screen):
      cell = best.cell
      if options.peer:
        flags.append(f"--peer={options.peer}")
      step = f"{name}-{cell.drafter}-{cell.temperature:g}"
      found[step] = measure(
        options,
        step,
        *flags,
        f"--drafters={cell.drafter}",
        f"--rules={cell.rule}",
        f"--num_draft_tokens={cell.num_draft_tokens}",
        f"--temperatures={cell.temperature:g}",
      )
      write(found)


def measure(options: argparse.Namespace, step: str, *flags: str) -> Summary:
  """Runs a benchmark, or goes on with it; returns what came of it."""
  folder = options.work / step
  command = [
    *(sys.executable, "-m", "specdec_jax.cli.main", "bench"),
    f"--target={options.target}",
    f"--draft={options.draft}",
    f"--max_new_tokens={options.max_new_tokens}",
    "--rounds=1",
    f"--note={options.note}",
    f"--output={folder}",
    *flags,
  ]
  print(" ".join(command), flush=True)
  done = subprocess.run(command)
  if done.returncode not in (0, 1):  # 1: a text differs, which is shown
    sys.exit(done.returncode)
  return summarize(*store.load(folder))


def finalists(screen: Summary) -> list[CellSummary]:
  """The fastest cell of each drafter and temperature."""
  best = []
  for temperature in TEMPERATURES:
    for drafter in DRAFTERS:
      cells = [
        it
        for it in screen.cells
        if it.cell.temperature == temperature
        and it.cell.drafter in (drafter, "none")
      ]
      choice = suggest.suggest(cells)
      # The fastest of its kind, also where plain decoding is faster still.
      fastest = choice.others[0] if choice.best is choice.plain else choice.best
      best.append(fastest)
  return best


def write(found: dict[str, Summary]) -> None:
  """Writes the page, its plots, and the figures behind it."""
  for step, summary in found.items():
    path = HERE / f"{step}.json"
    path.write_text(json.dumps(summary.to_dict(), indent=1) + "\n")
  report.write_pngs(HERE, found["screen"])
  (HERE / "README.md").write_text(page(found))


def page(found: dict[str, Summary]) -> str:
  """The page, in Markdown."""
  screen = found["screen"]
  header = screen.header
  lines = [
    "# Results",
    "",
    "Made by [make.py](make.py), which says how. A row is a setting of",
    "`specdec bench`: each prompt is decoded plainly and with every setting in",
    "turn, warm, on an otherwise idle machine. *speedup* is of the loop, all",
    "tokens over all seconds against plain decoding of the same engine; in",
    "brackets the quartiles over prompts. *τ*: tokens per pass of the target.",
    "",
    *facts(header),
    "",
    "## Every setting",
    "",
    f"{header['prompts']['count']} prompts of HumanEval.",
  ]
  for temperature in TEMPERATURES:
    lines += ["", f"### Temperature {temperature:g}", ""]
    lines += table(
      it for it in screen.cells if it.cell.temperature == temperature
    )
    plot = f"temperature-{temperature:g}-batch-1-speed.png"
    lines += ["", f"![speed against K, measured and predicted]({plot})"]
  lines += ["", "## The best of each"]
  for step, summary in found.items():
    if step != "screen":
      lines += ["", f"### {step}", "", *table(summary.cells)]
      lines += ["", *tasks(summary)]
  return "\n".join(lines) + "\n"


def facts(header) -> list[str]:
  """What was measured on what."""
  machine = ", ".join(f"{k} {v}" for k, v in header["machine"].items())
  versions = ", ".join(f"{k} {v}" for k, v in header["versions"].items())
  return [
    f"* machine: {machine}",
    f"* versions: {versions}",
    f"* weights: {header['note']}",
    f"* begun {header['begun']}, commit {header['commit']}",
  ]


def table(cells) -> list[str]:
  """Settings, a row each."""
  lines = [
    "| engine | drafter | rule | K | τ | accepted | tokens/s | speedup"
    " | predicted | overhead | identical |",
    "|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|",
  ]
  for it in cells:
    cell, total = it.cell, it.total
    engine = "specdec" if cell.engine == OURS else cell.engine
    predicted = overhead = identical = ""
    if it.prediction:
      predicted = f"{it.prediction.cost_speedup:.2f}"
    if it.time:
      overhead = f"{it.time.overhead:+.1%}"
    if it.identity:
      identical = f"{it.identity.identical} of {total.prompts}"
    rate = total.acceptance_rate
    values = (
      engine,
      cell.drafter,
      cell.rule if cell.temperature and not cell.is_plain else "",
      cell.num_draft_tokens or "",
      f"{total.tokens_per_pass:.2f}",
      "" if rate is None else f"{rate:.0%}",
      f"{total.tokens_per_second.median:.2f}",
      speedup(total),
      predicted,
      overhead,
      identical,
    )
    lines.append(f"| {' | '.join(map(str, values))} |")
  return lines


def tasks(summary: Summary) -> list[str]:
  """The speedup of each task."""
  cells = [it for it in summary.cells if not it.cell.is_plain]
  if not cells or len(cells[0].tasks) < 2:
    return []
  lines = ["| task | prompts | τ | speedup |", "|---|--:|--:|--:|"]
  for task in cells[0].tasks:
    lines.append(
      f"| {task.task} | {task.prompts} | {task.tokens_per_pass:.2f} |"
      f" {speedup(task)} |"
    )
  return lines


def speedup(figures: Figures) -> str:
  """With the quartiles over prompts."""
  if figures.total_speedup is None or figures.speedup is None:
    return ""
  spread = figures.speedup
  return f"{figures.total_speedup:.2f} ({spread.low:.2f} to {spread.high:.2f})"


if __name__ == "__main__":
  main(sys.argv[1:])
