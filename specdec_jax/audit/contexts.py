"""p and q as the engine had them, against both models from scratch."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Self

import numpy as np

from specdec_jax.acceptance import TokenRule
from specdec_jax.audit.checks import DRAFTER, TARGET_CACHE, Check
from specdec_jax.audit.self_draft import walk
from specdec_jax.audit.subject import Subject
from specdec_jax.models.language_model import LanguageModel
from specdec_jax.sampling import SamplingParams

_SAMPLES = 16  # texts of each prompt
_RECOMPUTED = 2  # of them: a pass of each model over every text takes long
_LEAST_LOG = -50.0  # what is less probable counts as this


@dataclasses.dataclass(frozen=True)
class Judged:
  """The drafts that were judged: those before and with the first rejected.

  Whether a draft is judged does not depend on it, only on those before it;
  and what stands before it is in the final text, whose laws one pass gives.

  Attributes:
    kept_N: whether it stayed.
    log_p_N: as the engine noted it.
    log_q_N: as the drafter told it; 0 where the draft was picked.
    overlap_N: 1 - TV of the two laws as noted; of a pick, p(x).
    drawn: whether drafts were drawn, and q told.
    true_overlap_N: 1 - TV of the two laws from scratch, nan where they were
      not recomputed; of a pick, or without a draft model, p(x) or as noted.
    p_apart_M: by how much log p differs from scratch: of drafts, and of the
      target's own tokens.
    q_apart_M: the same of log q; None where no model drafts.
  """

  kept_N: np.ndarray
  log_p_N: np.ndarray
  log_q_N: np.ndarray
  overlap_N: np.ndarray
  drawn: bool
  true_overlap_N: np.ndarray
  p_apart_M: np.ndarray
  q_apart_M: np.ndarray | None


def token_rule(subject: Subject) -> TokenRule:
  """The rule that drafts are judged by here: one after another.

  The one that is audited, where it is of that kind.
  """
  return subject.rule if isinstance(subject.rule, TokenRule) else TokenRule()


def judge(subject: Subject) -> Judged:
  """Runs the pair with a trace, and each model over what came out."""
  completions = subject.run(
    subject.drafter,
    token_rule(subject),
    subject.prompts,
    SamplingParams(temperature=1.0, seed=subject.seed),
    num_samples=_SAMPLES,
    trace=True,
  )
  noted, apart_p, apart_q = [], [], []
  true_overlap: list[float] = []
  drawn = False
  for index, completion in enumerate(completions):
    number, sample = divmod(index, _SAMPLES)
    prompt = subject.prompts[number]
    scratch = None
    if sample < _RECOMPUTED:
      scratch = _Scratch.of(subject, [*prompt, *completion.tokens])
    for text, block in walk(prompt, completion):
      q, overlaps = block.draft_log_probs, block.overlaps
      for i, draft in enumerate(block.drafts[: block.kept + 1]):
        log_p = block.target_log_probs[i]
        log_q = 0.0 if q is None else q[i]
        overlap = math.exp(log_p) if overlaps is None else overlaps[i]
        noted.append((i < block.kept, log_p, log_q, overlap))
        if scratch is None:
          true_overlap.append(math.nan)
          continue
        place = len(text) - 1 + i
        true_p, true_q = scratch.at(place, draft)
        apart_p.append(_apart(log_p, true_p))
        if q is None:
          overlap = math.exp(true_p)
        elif true_q is not None:
          drawn = True
          apart_q.append(_apart(log_q, true_q))
          overlap = scratch.overlap(place)
        true_overlap.append(overlap)
      if scratch and block.token_log_prob is not None:
        place = len(text) - 1 + block.kept
        assert block.token is not None  # it has a probability
        true_p, _ = scratch.at(place, block.token)
        apart_p.append(_apart(block.token_log_prob, true_p))
  kept_N, log_p_N, log_q_N, overlap_N = np.array(noted, float).reshape(-1, 4).T
  return Judged(
    kept_N=kept_N,
    log_p_N=log_p_N,
    log_q_N=log_q_N,
    overlap_N=overlap_N,
    drawn=drawn,
    true_overlap_N=np.array(true_overlap, float),
    p_apart_M=np.array(apart_p, float),
    q_apart_M=np.array(apart_q, float) if drawn else None,
  )


@dataclasses.dataclass(frozen=True)
class _Scratch:
  """Both models' laws along a text, from one pass of each.

  Attributes:
    log_p_TV: the target's, after each token.
    log_q_TV: the draft model's; None where there is none.
  """

  log_p_TV: np.ndarray
  log_q_TV: np.ndarray | None

  @classmethod
  def of(cls, subject: Subject, text: Sequence[int]) -> Self:
    draft = subject.draft
    return cls(
      log_probs(subject.target, text),
      None if draft is None else log_probs(draft, text),
    )

  def at(self, place: int, token: int) -> tuple[float, float | None]:
    """log p and log q of what follows the token at a place."""
    log_p = float(self.log_p_TV[place, token])
    if self.log_q_TV is None:
      return log_p, None
    return log_p, float(self.log_q_TV[place, token])

  def overlap(self, place: int) -> float:
    """1 - TV of the two laws after the token at a place."""
    assert self.log_q_TV is not None
    both_V = np.minimum(self.log_p_TV[place], self.log_q_TV[place])
    return float(np.exp(both_V).sum())


def log_probs(model: LanguageModel, text: Sequence[int]) -> np.ndarray:
  """A model's laws after each token, from scratch in one pass, `[T, V]`.

  Nothing of the engine is in it: no cache, no draft, no second position. In
  float64, at temperature 1.
  """
  logits_TV = model.logits(text).astype(np.float64)
  logits_TV -= logits_TV.max(axis=-1, keepdims=True)
  return logits_TV - np.log(np.exp(logits_TV).sum(axis=-1, keepdims=True))


def check(subject: Subject, judged: Judged) -> Check:
  """Whether p and q are those of the models after the same words.

  p that differs is the work of the target's cache or positions; q that
  differs, of the drafter: its cache or positions, or what it tells.
  """
  p_N, q_N = judged.p_apart_M, judged.q_apart_M
  limit = subject.rounding
  p_right = bool(p_N.max(initial=0) <= limit)
  q_right = q_N is None or bool(q_N.max(initial=0) <= limit)
  says = f"log p of {len(p_N)} tokens within {p_N.max(initial=0):.2g}"
  if q_N is not None:
    says += f", log q of {len(q_N)} drafts within {q_N.max(initial=0):.2g}"
  says += f" of a pass from scratch (rounding: {limit:g})"
  faults = ([] if p_right else [TARGET_CACHE]) + ([] if q_right else [DRAFTER])
  return Check(
    "p and q",
    passed=p_right and q_right,
    says=says,
    evidence={
      "rounding": limit,
      "p": _figures(p_N, limit),
      "q": None if q_N is None else _figures(q_N, limit),
    },
    faults=tuple(faults),
    clears=(TARGET_CACHE,) if p_right else (),
  )


def _apart(ours: float, theirs: float) -> float:
  """By how much log-probabilities differ; those of nothing do not."""
  return abs(max(ours, _LEAST_LOG) - max(theirs, _LEAST_LOG))


def _figures(apart_N: np.ndarray, limit: float) -> dict[str, float | int]:
  return {
    "count": len(apart_N),
    "wrong": int((apart_N > limit).sum()),
    "largest": float(apart_N.max(initial=0)),
    "mean": float(apart_N.mean()) if len(apart_N) else 0.0,
  }
