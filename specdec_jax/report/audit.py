"""One page about one audit: the verdict, then each check and its figures."""

import html
import json
from collections.abc import Mapping
from typing import Any

from specdec_jax.audit import Audit, Check

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 46rem;
  margin: 2rem auto; padding: 0 1rem; }
h2 { font-size: 1.1rem; margin: 1.5rem 0 0.25rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 1rem; }
dd { margin: 0; overflow-wrap: anywhere; }
pre { overflow-x: auto; font-size: 0.85rem; }
"""


def audit_page(audit: Audit) -> str:
  """The page, one file of HTML that needs no network."""
  title = html.escape(f"Audit: {audit.verdict}")
  return "\n".join(
    [
      "<!doctype html>",
      '<html lang="en"><head><meta charset="utf-8">',
      '<meta name="viewport" content="width=device-width, initial-scale=1">',
      f"<title>{title}</title>",
      f"<style>{_STYLE}</style>",
      f"</head><body>{_body(title, audit)}</body></html>",
    ]
  )


def _body(title: str, audit: Audit) -> str:
  about = dict(audit.subject) | {
    "false-alarm rate": f"at most {audit.alarm:g}",
    "took": f"{audit.seconds:.0f} s",
  }
  return "\n".join(
    [f"<h1>{title}</h1>", _list(about), *map(_section, audit.checks)]
  )


def _section(check: Check) -> str:
  verdict = "passed" if check.passed else "FAILED"
  lines = [
    f"<h2>{html.escape(check.name)}: {verdict}</h2>",
    f"<p>{html.escape(check.says)}</p>",
  ]
  if check.faults:
    parts = html.escape(" or ".join(check.faults))
    lines.append(f"<p>Points to: {parts}</p>")
  figures = html.escape(json.dumps(dict(check.evidence), indent=2))
  lines.append(
    f"<details><summary>Figures</summary><pre>{figures}</pre></details>"
  )
  return "\n".join(lines)


def _list(pairs: Mapping[str, Any]) -> str:
  rows = (
    f"<dt>{html.escape(str(name))}</dt><dd>{html.escape(str(value))}</dd>"
    for name, value in pairs.items()
  )
  return f"<dl>{''.join(rows)}</dl>"
