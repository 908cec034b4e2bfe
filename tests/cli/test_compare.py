"""`specdec generate --compare`: speeds and tokens beside plain decoding."""

import statistics

import pytest

import specdec_jax as sd
from specdec_jax.cli.terminal import Terminal

PROMPT = "--prompt=def f(x):"
SHORT = ("--max_new_tokens=12", "--num_draft_tokens=3")
KEYS = ["prompt", "text", "tokens", "finish_reason", "stats"]


def test_json_compares(generate):
  (result,) = generate.json(PROMPT, *SHORT, "--compare")
  assert list(result) == [
    *KEYS,
    "tokens_per_second",
    "plain",
    "speedup",
    "identical",
  ]
  assert list(result["plain"]) == [*KEYS[1:], "tokens_per_second"]
  assert result["identical"] is True
  assert result["plain"]["tokens"] == result["tokens"]
  assert result["plain"]["stats"]["target_passes"] == 12
  ratio = result["tokens_per_second"] / result["plain"]["tokens_per_second"]
  assert result["speedup"] == pytest.approx(ratio)


@pytest.mark.parametrize(
  "flags, verdict",
  [
    ((), "identical"),
    (("--temperature=1", "--rule=gumbel", "--seed=3"), "identical"),
    (("--temperature=1", "--rule=block", "--seed=3"), "as is to be expected"),
  ],
)
def test_compare_prints_speeds_and_a_verdict(generate, flags, verdict):
  code, out, _ = generate(PROMPT, *SHORT, "--compare", *flags)
  assert code == 0
  assert "median of 3 runs, warm" in out
  assert "speculative     plain   speedup" in out
  (line,) = (line for line in out.splitlines() if line.startswith("tokens  "))
  assert verdict in line


def test_compare_shows_where_greedy_tokens_differ(generate, monkeypatch):
  result = sd.Generation.result

  def other(self):
    found = result(self)
    if not found.stats.draft_tokens and len(found.tokens[0]) > 5:
      found.tokens[0][5] = 7
    return found

  monkeypatch.setattr(sd.Generation, "result", other)
  code, out, _ = generate(PROMPT, *SHORT, "--compare")
  assert code == 0
  assert "tokens" in out and "differ" in out
  last = out.splitlines()[-1]
  assert last.startswith("prompt: new token 6 is ")
  assert "plain '(' (7)" in last
  assert "the two top logits there are" in last and last.endswith("apart")


@pytest.mark.parametrize("rows, parts", [(1, "3 prompts"), (2, "2 batches")])
def test_a_file_of_prompts_is_compared(generate, prompts, rows, parts):
  flags = (f"--prompts_file={prompts}", "--compare", f"--batch_size={rows}")
  code, out, _ = generate(*flags, *SHORT)
  assert code == 0
  lines = [line for line in out.splitlines() if ", plain " in line]
  assert len(lines) == int(parts[0])
  assert all(line.endswith("; tokens identical") for line in lines)
  speedups = [float(line.split("x as fast")[0].split()[-1]) for line in lines]
  passes = [float(line.split(" per pass")[0].split()[-1]) for line in lines]
  (row,) = (line for line in out.splitlines() if line.startswith("median of "))
  label, figures = row.split("  ", 1)
  assert label == f"median of {parts}"
  tau, speedup = figures.split(" tokens per pass, ")
  assert float(tau) == pytest.approx(statistics.median(passes), abs=0.011)
  assert float(speedup.removesuffix("x as fast")) == pytest.approx(
    statistics.median(speedups), abs=0.011
  )


def test_what_goes_on_is_told_of_the_prompt_it_goes_on_with(
  generate, prompts, monkeypatch
):
  told = []
  monkeypatch.setattr(Terminal, "status", lambda _, text: told.append(text))
  generate(f"--prompts_file={prompts}", "--compare", *SHORT)
  numbers = [text.split(":")[0] for text in told if text.startswith("prompt")]
  assert numbers == [f"prompt {i} of 3" for i in (1, 2, 3) for _ in range(3)]


def test_sampled_text_is_not_said_to_differ_prompt_by_prompt(generate, prompts):
  flags = (f"--prompts_file={prompts}", "--compare", "--temperature=1")
  _, out, _ = generate(*flags, *SHORT)
  lines = [line for line in out.splitlines() if ", plain " in line]
  assert len(lines) == 3
  assert all(line.endswith("x as fast") for line in lines)
