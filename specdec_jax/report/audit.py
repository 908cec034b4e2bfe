"""One page about one audit: the verdict, then each check and its figures."""

import json

from specdec_jax.audit import Audit, Check
from specdec_jax.report import page
from specdec_jax.report.markup import Html, tag


def audit_page(audit: Audit) -> str:
  """A file of HTML with the verdict and the evidence."""
  about = {name: str(value) for name, value in audit.subject.items()}
  about["false-alarm rate"] = f"at most {audit.alarm:g}"
  about["took"] = f"{audit.seconds:.0f} s"
  return page.page(
    f"Audit: {audit.verdict}",
    *map(_section, audit.checks),
    lead=page.settings(about),
  )


def _section(check: Check) -> Html:
  """One check: what it says, and its figures behind a click."""
  figures = json.dumps(dict(check.evidence), indent=2)
  return page.section(
    f"{check.name}: {'passed' if check.passed else 'FAILED'}",
    tag("p", f"Points to: {' or '.join(check.faults)}.")
    if check.faults
    else None,
    tag("details", tag("summary", "Figures"), tag("pre", figures)),
    note=f"{check.says}.",
  )
