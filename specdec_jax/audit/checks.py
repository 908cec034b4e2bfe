"""What an audit says: its checks, the verdict, and which part is to blame."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

RULE = "rule"
DRAFTER = "drafter"
TARGET_CACHE = "target cache"


@dataclasses.dataclass(frozen=True)
class Check:
  """One check and what it saw.

  Attributes:
    name: of the check, a word or two.
    passed: whether all was as it must be.
    says: what it saw, in a line.
    evidence: the figures, as JSON has them.
    faults: the parts that a failed check points to: one where it is sure, more
      where any of them may be the cause.
    clears: the parts that this check has shown to be right.
  """

  name: str
  passed: bool
  says: str
  evidence: Mapping[str, Any]
  faults: tuple[str, ...] = ()
  clears: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Audit:
  """The verdict on a pair.

  Attributes:
    subject: what was audited: names and settings, as JSON has them.
    checks: in the order in which they ran.
    alarm: how probable it is at most that a right pair fails by chance.
    seconds: what the audit took.
  """

  subject: Mapping[str, Any]
  checks: tuple[Check, ...]
  alarm: float
  seconds: float

  @property
  def passed(self) -> bool:
    return all(check.passed for check in self.checks)

  @property
  def parts(self) -> tuple[str, ...]:
    """The parts to blame, see `blamed`; none where all checks passed."""
    return blamed(self.checks)

  @property
  def verdict(self) -> str:
    """PASS, or FAIL and the parts to blame."""
    if self.passed:
      return "PASS"
    return f"FAIL: {' and '.join(self.parts)}"

  @property
  def words(self) -> str:
    """All of it in lines of text."""
    width = max(len(check.name) for check in self.checks)
    lines = []
    for check in self.checks:
      mark = "pass" if check.passed else "FAIL"
      lines.append(f"{mark}  {check.name:{width}}  {check.says}")
    return "\n".join([*lines, self.verdict])

  def to_dict(self) -> dict[str, Any]:
    """For JSON."""
    return {
      "passed": self.passed,
      "parts": list(self.parts),
      "subject": dict(self.subject),
      "checks": [
        {
          "name": check.name,
          "passed": check.passed,
          "says": check.says,
          "faults": list(check.faults),
          "evidence": dict(check.evidence),
        }
        for check in self.checks
      ],
      "false_alarm_rate": self.alarm,
      "seconds": self.seconds,
    }


def blamed(checks: Sequence[Check]) -> tuple[str, ...]:
  """Which parts explain the checks that failed.

  A check that points to one part is believed. A check that points to several
  is explained by a part that is blamed already; if there is none, by those of
  its parts that no check has cleared. So a wrong rule is what remains where
  the law of the text is wrong though p and q are right.
  """
  failed = [check for check in checks if not check.passed]
  cleared = {part for check in checks for part in check.clears}
  found = {c.faults[0]: None for c in failed if len(c.faults) == 1}
  for check in failed:
    if not found.keys() & set(check.faults):
      left = [part for part in check.faults if part not in cleared]
      found.update(dict.fromkeys(left or check.faults))
  return tuple(found)
