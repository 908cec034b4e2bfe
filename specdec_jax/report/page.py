"""The frame of a page: one file for light, dark, phones and paper."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from specdec_jax.report.markup import Html, join, tag
from specdec_jax.report.palette import DARK, LIGHT, Palette

_STYLE = Path(__file__).with_name("style.css")

# Nothing is fetched and nothing runs, whatever a model has written.
_POLICY = (
  "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
  "base-uri 'none'; form-action 'none'"
)


def page(title: str, *body: str, lead: str | None = None) -> str:
  """A whole HTML file.

  Args:
    title: its heading.
    body: what follows, made with `markup`; plain strings are escaped.
    lead: a sentence or markup below the heading.
  """
  head = tag(
    "head",
    tag("meta", charset="utf-8"),
    tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
    tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
    tag("meta", name="color-scheme", content="light dark"),
    # Else browsers ask the server for one.
    tag("link", rel="icon", href="data:,"),
    tag("title", title),
    tag("style", Html(_css())),
  )
  content = tag(
    "main",
    tag(
      "header",
      tag("p", "specdec_jax", class_="brand"),
      tag("h1", title),
      None if lead is None else tag("div", lead, class_="lead"),
    ),
    *body,
  )
  whole = tag("html", head, tag("body", content), lang="en")
  return str(join(Html("<!doctype html>\n"), whole, Html("\n")))


def section(title: str, *body: str | None, note: str | None = None) -> Html:
  """A part of a page.

  Args:
    title: its heading.
    body: what is in it.
    note: a sentence below the heading.
  """
  return tag(
    "section",
    tag("h2", title),
    None if note is None else tag("p", note, class_="note"),
    *body,
  )


def figures(*pairs: tuple[str, str, str | None]) -> Html:
  """Large numbers side by side: label, number, remark."""
  return tag(
    "dl",
    *(
      tag(
        "div",
        tag("dt", label),
        tag("dd", tag("b", number), None if rest is None else tag("i", rest)),
      )
      for label, number, rest in pairs
    ),
    class_="figures",
  )


def settings(pairs: Mapping[str, str]) -> Html:
  """Names and values in small print."""
  return tag(
    "dl",
    *(tag("div", tag("dt", k), tag("dd", v)) for k, v in pairs.items()),
    class_="settings",
  )


def table(
  columns: tuple[str, ...], rows: Sequence[tuple[str, ...]], caption: str
) -> Html:
  """A table; the first column names its rows. It scrolls where it is wide."""
  head = tag("tr", *(tag("th", name, scope="col") for name in columns))
  body = (
    tag("tr", tag("th", row[0], scope="row"), *(tag("td", x) for x in row[1:]))
    for row in rows
  )
  whole = tag(
    "table",
    tag("caption", caption),
    tag("thead", head),
    tag("tbody", *body),
  )
  # What scrolls must be reachable without a mouse.
  return tag(
    "div",
    whole,
    class_="scroll",
    tabindex="0",
    role="region",
    aria_label=caption,
  )


def bar(share: float) -> Html:
  """A bar as long as a share of its column; the number stands beside it."""
  width = f"width:{100 * min(max(share, 0.0), 1.0):.1f}%"
  return tag("span", tag("span", style=width), class_="bar", aria_hidden="true")


def _css() -> str:
  return (
    f":root{{color-scheme:light dark;{_variables(LIGHT)}}}\n"
    # Paper is light, whatever the screen.
    "@media screen and (prefers-color-scheme:dark)"
    f"{{:root{{{_variables(DARK)}}}}}\n" + _STYLE.read_text(encoding="utf-8")
  )


def _variables(palette: Palette) -> str:
  values = dataclasses.asdict(palette)
  return "".join(
    f"--{name.replace('_', '-')}:{value};"
    for name, value in values.items()
    if isinstance(value, str)
  )
