"""The verdict: which part explains the checks that failed."""

import json

import pytest

from specdec_jax.audit import Audit, Check
from specdec_jax.audit.checks import DRAFTER, RULE, TARGET_CACHE, blamed

ALL = (RULE, DRAFTER, TARGET_CACHE)


def check(*faults, clears=(), name="x"):
  return Check(name, not faults, "words", {"n": 1}, faults, clears)


@pytest.mark.parametrize(
  "checks, parts",
  [
    ([check(), check()], ()),
    ([check(*ALL)], ALL),
    # The law is wrong, and nothing else: the rule remains.
    (
      [check(*ALL), check(clears=[TARGET_CACHE]), check(clears=[DRAFTER])],
      [RULE],
    ),
    # What is sure explains what is not.
    ([check(*ALL), check(DRAFTER, clears=[TARGET_CACHE])], [DRAFTER]),
    ([check(TARGET_CACHE, RULE), check(TARGET_CACHE)], [TARGET_CACHE]),
    # A drafter cannot explain that greedy tokens differ.
    (
      [check(TARGET_CACHE, RULE), check(DRAFTER, clears=[TARGET_CACHE])],
      [DRAFTER, RULE],
    ),
    # Cleared, and yet the only one that is pointed to.
    ([check(DRAFTER, TARGET_CACHE), check(clears=[DRAFTER])], [TARGET_CACHE]),
  ],
)
def test_parts(checks, parts):
  assert blamed(checks) == tuple(parts)


def test_an_audit_in_words_and_for_json():
  audit = Audit({"rule": "x"}, (check(name="one"), check(RULE)), 1e-3, 2.0)
  assert not audit.passed
  assert audit.verdict == "FAIL: rule"
  assert audit.words.splitlines() == [
    "pass  one  words",
    "FAIL  x    words",
    "FAIL: rule",
  ]
  told = json.loads(json.dumps(audit.to_dict(), allow_nan=False))
  assert (told["passed"], told["parts"]) == (False, ["rule"])
  assert [it["faults"] for it in told["checks"]] == [[], ["rule"]]
  assert Audit({}, (check(),), 1e-3, 2.0).verdict == "PASS"
