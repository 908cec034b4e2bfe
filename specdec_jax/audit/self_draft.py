"""The target drafts for itself: all its drafts must stay."""

from collections.abc import Iterator
from typing import Any

from specdec_jax.audit import chance, ties
from specdec_jax.audit.checks import RULE, TARGET_CACHE, Check
from specdec_jax.audit.subject import Subject
from specdec_jax.drafters import DraftModel
from specdec_jax.results import Completion
from specdec_jax.sampling import SamplingParams
from specdec_jax.trace import Block

_LEAST_LOG = -50.0  # what is less probable counts as this


def check(subject: Subject) -> Check:
  """Acceptance of a draft that is the target, at temperature 0 and 1.

  p and q are then one law, computed by passes of other widths. A rejection is
  rounding where the tokens nearly tied, or, where drafts are drawn, as often
  as the small differences of p and q explain; else it is a fault. Rows of
  both temperatures run in one batch, under the rule that is audited.
  """
  count = len(subject.prompts)
  temperatures = [0.0] * count + [1.0] * count
  completions = subject.run(
    DraftModel(subject.target, num_draft_tokens=subject.width),
    subject.rule,
    subject.prompts * 2,
    [
      SamplingParams(temperature=t, seed=(subject.seed + i) % 2**32)
      for i, t in enumerate(temperatures)
    ],
    trace=True,
  )
  judged, kept, drawn_rejected = 0, 0, 0
  expected = apart = 0.0
  raced: list[dict[str, Any]] = []
  for row, (completion, temperature) in enumerate(
    zip(completions, temperatures, strict=True)
  ):
    for text, block in walk(subject.prompts[row % count], completion):
      rejected = int(block.kept < len(block.drafts))
      kept += block.kept
      judged += block.kept + rejected
      if temperature and not subject.rule.coupled:
        drawn_rejected += rejected
        lost = _lost(block)
        expected += min(sum(max(x, 0.0) for x in lost), 1.0)
        apart = max([apart, *map(abs, lost)])
      elif rejected:
        assert block.token is not None
        tie = ties.look(
          subject.target,
          [*text, *block.drafts[: block.kept]],
          (block.drafts[block.kept], block.token),
          subject.seed + row if temperature else None,
        )
        near = tie.gap <= subject.rounding
        kind = "near tie" if near else "fault"
        raced.append({"temperature": temperature, "gap": tie.gap, "kind": kind})
  p_value = chance.too_many(drawn_rejected, expected)
  faults: tuple[str, ...] = ()
  if apart > subject.rounding:
    faults = (TARGET_CACHE,)
  elif p_value < subject.level:
    faults = (RULE,)
  elif any(it["kind"] == "fault" for it in raced):
    faults = (TARGET_CACHE, RULE)
  says = f"{kept} of {judged} drafts of the target itself stayed"
  if kept < judged:
    ties_near = sum(it["kind"] == "near tie" for it in raced)
    says += (
      f"; of the others {ties_near} nearly tied, and rounding explains "
      f"{expected:.2g} of {drawn_rejected} that were drawn"
    )
  if apart > subject.rounding:
    says += f"; its log-probabilities differ from themselves by {apart:.3g}"
  return Check(
    "self-draft",
    passed=not faults,
    says=says,
    evidence={
      "judged": judged,
      "kept": kept,
      "acceptance": kept / judged if judged else None,
      "drawn_rejected": drawn_rejected,
      "drawn_rejected_expected": expected,
      "p_value": p_value,
      "log_probs_apart": apart,
      "rounding": subject.rounding,
      "ties": raced,
    },
    faults=faults,
  )


def _lost(block: Block) -> list[float]:
  """log q - log p of each draft; none where q is not told."""
  if block.draft_log_probs is None:
    return []
  pairs = zip(block.draft_log_probs, block.target_log_probs, strict=True)
  return [max(q, _LEAST_LOG) - max(p, _LEAST_LOG) for q, p in pairs]


def walk(
  prompt: tuple[int, ...], completion: Completion
) -> Iterator[tuple[list[int], Block]]:
  """Each block of a text, with the text before it."""
  text = list(prompt)
  new = iter(completion.tokens)
  for block in completion.blocks or ():
    yield list(text), block
    text += [next(new) for _ in range(block.new_tokens)]
