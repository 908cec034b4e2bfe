"""How many drafts stay, against what the two laws say must stay."""

import numpy as np

from specdec_jax.audit import chance
from specdec_jax.audit.checks import DRAFTER, RULE, TARGET_CACHE, Check
from specdec_jax.audit.contexts import Judged
from specdec_jax.audit.subject import Subject

NUM_TESTS = 3


def check(subject: Subject, judged: Judged) -> Check:
  """Three sums of which each has mean 0 at every step.

  * kept - (1 - TV): a draft drawn from q stays with probability 1 - TV of p
    and q, both from scratch (Leviathan et al., arXiv 2211.17192, section
    3.2). A shortfall alone points to p or q of another context, or to drafts
    that do not follow q.
  * kept - min(1, p/q) of the draft itself, with p and q as the engine had
    them: this is the rule's part.
  * q(x) - Σ q²: whether drafts follow q. This is the drafter's.
  """
  count = len(judged.kept_N)
  if not count:
    return Check("acceptance", True, "nothing was drafted", {"judged": 0})
  kept_N = judged.kept_N.astype(float)
  chance_N = np.exp(np.minimum(judged.log_p_N - judged.log_q_N, 0.0))
  tests = {
    "1 - TV": _drift(kept_N, judged.overlap_N),
    "rule": _drift(kept_N, chance_N),
  }
  if judged.law_q_NM is not None and judged.true_q_N is not None:
    second_N, third_N = judged.law_q_NM.T
    tests["draws"] = chance.drift(
      np.exp(judged.true_q_N) - second_N, third_N - second_N**2
    )
  failed = {name for name, (_, p) in tests.items() if p < subject.level}
  faults: tuple[str, ...] = ()
  if failed & {"rule", "draws"}:
    faults = (RULE,) * ("rule" in failed) + (DRAFTER,) * ("draws" in failed)
  elif failed:
    faults = (DRAFTER, TARGET_CACHE)
  rate, expected = kept_N.mean(), judged.overlap_N.mean()
  z, p_value = tests["1 - TV"]
  return Check(
    "acceptance",
    passed=not failed,
    says=(
      f"{rate:.1%} of {count} drafts kept, {expected:.1%} by 1 - TV "
      f"(z = {z:+.2f}, p-value {p_value:.2g})"
      + "".join(
        f"; {name}: z = {tests[name][0]:+.2f}"
        for name in tests
        if name in failed
      )
    ),
    evidence={
      "judged": count,
      "kept": int(kept_N.sum()),
      "acceptance": float(rate),
      "expected": float(expected),
      "level": subject.level,
      "tests": {name: {"z": z, "p_value": p} for name, (z, p) in tests.items()},
    },
    faults=faults,
    clears=() if failed else (DRAFTER,),
  )


def _drift(kept_N: np.ndarray, mean_N: np.ndarray) -> tuple[float, float]:
  return chance.drift(kept_N - mean_N, mean_N * (1 - mean_N))
