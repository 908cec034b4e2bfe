"""The page of `specdec generate --report`: each text, block by block."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import specdec_jax as sd
from specdec_jax.cli.report import Outcome
from specdec_jax.cli.terminal import Terminal
from specdec_jax.report import Generated, token_page
from specdec_jax.training.files import write_whole

# What stands at the top of the page, by its name among the settings.
_SHOWN = (
  "target",
  "draft",
  "dtype",
  "quantize",
  "drafter",
  "num_draft_tokens",
  "rule",
)


def check_path(path: str) -> None:
  """Refuses what could not be written in the end.

  Raises:
    ValueError: it names no file in a folder that is there.
  """
  if not path:
    raise ValueError("--report: expected a path, got nothing")
  if Path(path).is_dir():
    raise ValueError(f"--report: expected a file, got a folder: {path}")
  if not Path(path).parent.is_dir():
    raise ValueError(f"--report: no such folder: {Path(path).parent}")


def write(
  path: Path,
  done: Sequence[Outcome],
  decoder: sd.SpeculativeDecoder,
  settings: Mapping[str, Any],
  shown: Terminal,
) -> None:
  """Writes the page of all texts, those interrupted among them.

  Args:
    path: of the file. What was there before stays until all is written.
    done: what was generated, with a trace.
    decoder: what it was generated with.
    settings: of the models.
    shown: tells where the page is.

  Raises:
    OSError: it cannot be written.
  """
  generated = [
    Generated(prompt.name, prompt.text, completion)
    for outcome in done
    if outcome.result is not None
    for prompt, completion in zip(
      outcome.batch.prompts, outcome.result.completions, strict=True
    )
    if completion.stats.target_passes  # else it was interrupted before it began
  ]
  if not generated:
    return
  page = token_page(
    generated,
    decoder.target.tokenizer,
    dict(_told(settings, decoder, done[0].batch.sampling[0])),
  )
  write_whole(path, page.encode())
  shown.note(f"each block is shown in {path}")


def _told(
  settings: Mapping[str, Any],
  decoder: sd.SpeculativeDecoder,
  params: sd.SamplingParams,
) -> Iterator[tuple[str, str]]:
  """What the texts were made with, in words."""
  drafter: dict[str, Any] = {
    "num_draft_tokens": decoder.drafter.num_draft_tokens
  }
  if settings["drafter"] != "model":
    drafter["draft"] = None
  for name, value in {**settings, **drafter}.items():
    if name in _SHOWN and value is not None:
      yield name.replace("_", " "), str(value)
  default = dataclasses.asdict(sd.SamplingParams())
  for name, value in dataclasses.asdict(params).items():
    if name in ("temperature", "seed") or value != default[name]:
      yield name.replace("_", " "), str(value)
