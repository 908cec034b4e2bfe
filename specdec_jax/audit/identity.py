"""The same tokens as plain decoding: greedy, and with shared Gumbel noise."""

from collections.abc import Sequence
from typing import Any

from specdec_jax.acceptance import GumbelRule
from specdec_jax.audit import ties
from specdec_jax.audit.checks import RULE, TARGET_CACHE, Check
from specdec_jax.audit.subject import Subject
from specdec_jax.drafters import NoDraft
from specdec_jax.sampling import SamplingParams
from specdec_jax.types import AcceptanceRule

# No drafter can change these tokens, however wrong it is.
_FAULTS = (TARGET_CACHE, RULE)


def greedy(subject: Subject) -> Check:
  """At temperature 0 both are the target's most probable tokens."""
  return _check(subject, "greedy identity", subject.rule, temperature=0.0)


def gumbel(subject: Subject) -> Check:
  """At temperature 1 both win the same race, with the same seeds.

  With the rule `gumbel`, whatever rule is audited, unless that is a kind of
  it.
  """
  rule = subject.rule
  if not isinstance(rule, GumbelRule):
    rule = GumbelRule()
  return _check(subject, "gumbel identity", rule, temperature=1.0)


def _check(
  subject: Subject, name: str, rule: AcceptanceRule, temperature: float
) -> Check:
  sampling = SamplingParams(temperature=temperature, seed=subject.seed)
  # Plain decoding takes the library's own rule: a broken one may be wrong
  # without drafts as well.
  plain_rule = GumbelRule() if temperature else rule
  plain, ours = (
    subject.run(drafter, used, subject.prompts, sampling)
    for drafter, used in ((NoDraft(), plain_rule), (subject.drafter, rule))
  )
  differences = []
  compared = 0
  for index, (a, b) in enumerate(zip(ours, plain, strict=True)):
    place = _first_difference(a.tokens, b.tokens)
    compared += len(b.tokens) if place is None else place + 1
    if place is None:
      continue
    context = [*subject.prompts[index], *a.tokens[:place]]
    # The n-th prompt has the seed of that number.
    seed = subject.seed + index if temperature else None
    tokens = (a.tokens[place], b.tokens[place])
    tie = ties.look(subject.target, context, tokens, seed)
    near = tie.gap <= subject.rounding
    differences.append(
      {
        "prompt": index,
        "place": place,
        "speculative": tokens[0],
        "plain": tokens[1],
        "gap": tie.gap,
        "top_gap": tie.top_gap,
        "kind": "near tie" if near else "fault",
      }
    )
  faults = [it for it in differences if it["kind"] == "fault"]
  return Check(
    name,
    passed=not faults,
    says=_says(differences, len(ours), compared, subject.rounding),
    evidence={
      "prompts": len(ours),
      "tokens": compared,
      "identical": len(ours) - len(differences),
      "largest_gap_of_a_near_tie": subject.rounding,
      "differences": differences,
    },
    faults=_FAULTS if faults else (),
  )


def _first_difference(ours: Sequence[int], theirs: Sequence[int]) -> int | None:
  """The first place where two texts differ; they have ends of their own.

  A text ends by its tokens and by its length alone, so none is the beginning
  of the other.
  """
  pairs = zip(ours, theirs, strict=False)
  return next((i for i, (a, b) in enumerate(pairs) if a != b), None)


def _says(
  differences: Sequence[dict[str, Any]],
  prompts: int,
  compared: int,
  rounding: float,
) -> str:
  if not differences:
    return f"{prompts} of {prompts} texts identical, {compared} tokens"
  faults = [it for it in differences if it["kind"] == "fault"]
  line = f"{prompts - len(differences)} of {prompts} texts identical"
  if near := len(differences) - len(faults):
    line += f"; {near} part at a near tie (within {rounding:g})"
  if faults:
    worst = max(faults, key=lambda it: it["gap"])
    line += (
      f"; {len(faults)} part without one: of prompt {worst['prompt'] + 1}, "
      f"token {worst['place'] + 1} lies {worst['gap']:.3g} below the best"
    )
  return line
