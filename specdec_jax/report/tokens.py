"""The token view: each block of a generation, and what became of its drafts."""

import dataclasses
import itertools
import math
import re
from collections.abc import Mapping, Sequence

from specdec_jax.loading.tokenizer import Tokenizer
from specdec_jax.report import page
from specdec_jax.report.blocks import block_list, legend
from specdec_jax.report.markup import Html, join, tag, text
from specdec_jax.report.spelling import Speller
from specdec_jax.results import Completion
from specdec_jax.stats import Stats

_ENDS = {
  "eos": "ended by itself",
  "stop": "ended by a stop string",
  "length": "ended by the length limit",
  "nonfinite": "ended: logits were not finite",
  None: "interrupted",
}
# Words on a line with what is between them, and what is between lines.
_WORDS = re.compile(r"\S+(?:[^\S\n]+\S+)*|\s+")
_PROMPT = 60  # characters of it in a list


@dataclasses.dataclass(frozen=True)
class Generated:
  """A generation to show.

  Attributes:
    name: what tells it from others.
    prompt: its text.
    completion: made with `trace=True`.
  """

  name: str
  prompt: str
  completion: Completion


def token_page(
  generated: Sequence[Generated],
  tokenizer: Tokenizer | None,
  settings: Mapping[str, str],
) -> str:
  """A file of HTML with the token view of some generations.

  Args:
    generated: at least one.
    tokenizer: of the target; None shows ids.
    settings: what they were made with, in words.

  Raises:
    ValueError: a generation was made without a trace.
  """
  if len(generated) == 1:
    body = token_view(
      generated[0].completion, tokenizer, prompt=generated[0].prompt
    )
  else:
    body = join(_overview(generated), *_folded(generated, tokenizer))
  return page.page("Token by token", body, lead=page.settings(settings))


def token_view(
  completion: Completion, tokenizer: Tokenizer | None, *, prompt: str
) -> Html:
  """The token view of one generation, to be put in a page.

  Args:
    completion: made with `trace=True`.
    tokenizer: of the target; None shows ids.
    prompt: its text.

  Raises:
    ValueError: the completion has no trace.
  """
  if completion.blocks is None:
    raise ValueError(
      "completion: expected one with blocks, got none; generate with trace=True"
    )
  return join(
    _figures(completion),
    _acceptance(completion.stats),
    page.section(
      "Text",
      tag(
        "details",
        tag("summary", "Prompt"),
        tag("pre", prompt, class_="prompt"),
      ),
      _text(completion),
    ),
    page.section(
      "Blocks",
      legend(completion.blocks),
      block_list(completion.blocks, Speller(tokenizer)),
      note="A line is a block: one pass of the target, which judges the "
      "drafts. Point at a token, tap it or move there with the Tab key to see "
      "its probabilities.",
    ),
  )


def _figures(completion: Completion) -> Html:
  stats = completion.stats
  drafted = stats.draft_tokens
  return page.figures(
    ("tokens per pass, τ", _number(stats.tokens_per_target_pass), None),
    ("new tokens", str(stats.new_tokens), _ENDS[completion.finish_reason]),
    ("passes of the target", str(stats.target_passes), None),
    (
      "drafts kept",
      f"{stats.acceptance_rate:.0%}" if drafted else "-",
      f"{stats.accepted_tokens} of {drafted}" if drafted else "none drafted",
    ),
  )


def _number(value: float) -> str:
  return "-" if math.isnan(value) else f"{value:.2f}"


def _acceptance(stats: Stats) -> Html | None:
  """How many drafts were kept at each place of the block."""
  places = [
    (place, kept, drafted)
    for place, (kept, drafted) in enumerate(
      zip(stats.accepted_per_position, stats.drafted_per_position, strict=True),
      1,
    )
    if drafted
  ]
  if not places:
    return None
  rows = [
    (
      str(place),
      page.bar(kept / drafted),
      f"{kept / drafted:.0%}",
      f"{kept} of {drafted}",
    )
    for place, kept, drafted in places
  ]
  return page.section(
    "Acceptance by position",
    page.table(
      ("draft", "", "kept", "count"),
      rows,
      "Share of blocks that kept the draft at each place",
    ),
  )


def _text(completion: Completion) -> Html:
  """What was written, marked by who wrote it."""
  if not completion.pieces:
    return tag("p", "The target has no tokenizer.", class_="note")
  marked = list[Html]()
  pairs = zip(completion.drafted, completion.pieces, strict=True)
  for by_draft, run in itertools.groupby(pairs, key=lambda pair: pair[0]):
    name, look = ("span", "by-draft") if by_draft else ("b", "by-target")
    for part in _WORDS.findall("".join(piece for _, piece in run)):
      # Lines under an indentation would look like words.
      marked.append(
        text(part) if part.isspace() else tag(name, part, class_=look)
      )
  return join(
    tag("pre", *marked, class_="written"),
    tag(
      "ul",
      tag("li", tag("span", "underlined", class_="by-draft"), ": by the draft"),
      tag("li", tag("b", "bold", class_="by-target"), ": the target's own"),
      class_="legend",
    ),
  )


def _overview(generated: Sequence[Generated]) -> Html:
  """All generations in a table, and their sum in figures."""
  total = Stats.total(it.completion.stats for it in generated)
  rows = []
  for number, it in enumerate(generated, 1):
    stats = it.completion.stats
    rows.append(
      (
        tag("a", it.name, href=f"#g{number}"),
        tag("span", _shorten(it.prompt), class_="excerpt"),
        str(stats.new_tokens),
        str(stats.target_passes),
        _number(stats.tokens_per_target_pass),
        f"{stats.acceptance_rate:.0%}" if stats.draft_tokens else "-",
      )
    )
  return join(
    page.figures(
      ("texts", str(len(generated)), None),
      ("tokens per pass, τ", _number(total.tokens_per_target_pass), None),
      ("new tokens", str(total.new_tokens), None),
      ("passes of the target", str(total.target_passes), None),
    ),
    page.section(
      "Texts",
      page.table(
        ("text", "prompt", "new tokens", "passes", "τ", "drafts kept"),
        rows,
        "All texts of this page",
      ),
    ),
  )


def _folded(
  generated: Sequence[Generated], tokenizer: Tokenizer | None
) -> list[Html]:
  """Each generation behind a line that opens it."""
  return [
    tag(
      "details",
      tag(
        "summary",
        tag("b", it.name),
        " ",
        tag("span", _shorten(it.prompt), class_="excerpt"),
      ),
      token_view(it.completion, tokenizer, prompt=it.prompt),
      class_="generation",
      id=f"g{number}",
      open=number == 1,
    )
    for number, it in enumerate(generated, 1)
  ]


def _shorten(prompt: str) -> str:
  line = " ".join(prompt.split())
  return line if len(line) <= _PROMPT else line[: _PROMPT - 1] + "…"
