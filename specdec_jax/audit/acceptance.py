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
    3.2). A shortfall of this alone points to p or q of another context.
  * kept - min(1, p/q) of the draft itself, with p and q as the engine had
    them: the rule's part.
  * min(1, p/q) - (1 - TV), as the engine had them: whether drafts follow the
    q that is told, the drafter's part.
  """
  count = len(judged.kept_N)
  if not count:
    return Check("acceptance", True, "nothing was drafted", {"judged": 0})
  known_N = ~np.isnan(judged.true_overlap_N)
  kept_N, true_N = judged.kept_N[known_N], judged.true_overlap_N[known_N]
  passing_N = np.exp(np.minimum(judged.log_p_N - judged.log_q_N, 0.0))
  tests = {
    "1 - TV": _drift(kept_N, true_N),
    "rule": _drift(judged.kept_N, passing_N),
  }
  if judged.drawn:
    # The variance of what lies in [0, 1] is at most mean * (1 - mean).
    tests["draws"] = _drift(passing_N, judged.overlap_N)
  failed = {name for name, (_, p) in tests.items() if p < subject.level}
  faults: tuple[str, ...] = ()
  if failed & {"rule", "draws"}:
    faults = (RULE,) * ("rule" in failed) + (DRAFTER,) * ("draws" in failed)
  elif failed:
    faults = (DRAFTER, TARGET_CACHE)
  rate, expected = kept_N.mean(), true_N.mean()
  z, p_value = tests["1 - TV"]
  return Check(
    "acceptance",
    passed=not failed,
    says=(
      f"{rate:.1%} of {len(kept_N)} drafts kept, {expected:.1%} by 1 - TV "
      f"(z = {z:+.2f}, p-value {p_value:.2g})"
      + "".join(
        f"; {name}: z = {tests[name][0]:+.2f}"
        for name in tests
        if name in failed
      )
    ),
    evidence={
      "judged": count,
      "kept": int(judged.kept_N.sum()),
      "recomputed": len(kept_N),
      "acceptance": float(rate),
      "expected": float(expected),
      "level": subject.level,
      "tests": {name: {"z": z, "p_value": p} for name, (z, p) in tests.items()},
    },
    faults=faults,
    clears=() if failed else (DRAFTER,),
  )


def _drift(seen_N: np.ndarray, mean_N: np.ndarray) -> tuple[float, float]:
  """Of what lies in [0, 1] and has this mean, at every step."""
  # Rounding may leave a sum of probabilities above 1.
  mean_N = np.clip(mean_N, 0, 1)
  return chance.drift(seen_N - mean_N, mean_N * (1 - mean_N))
