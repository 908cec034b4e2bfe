"""p and q as the engine had them, against both models from scratch."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from specdec_jax.acceptance import TokenRule
from specdec_jax.audit.checks import DRAFTER, TARGET_CACHE, Check
from specdec_jax.audit.self_draft import walk
from specdec_jax.audit.subject import Subject
from specdec_jax.sampling import SamplingParams
from specdec_jax.types import Array

_SAMPLES = 4  # texts of each prompt
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
    true_p_N: log p from scratch.
    true_q_N: log q from scratch; None where no model drafts.
    overlap_N: 1 - TV of the two laws from scratch, as far as it is known; of
      a pick p(x), from scratch.
    law_q_NM: of q from scratch, the sums over v of q² and of q³; None where
      no draft was drawn from a model.
    own_M: by how much log p of the target's own tokens differs from scratch.
  """

  kept_N: np.ndarray
  log_p_N: np.ndarray
  log_q_N: np.ndarray
  true_p_N: np.ndarray
  true_q_N: np.ndarray | None
  overlap_N: np.ndarray
  law_q_NM: np.ndarray | None
  own_M: np.ndarray


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
  kept, log_p, log_q, true_p, true_q = [], [], [], [], []
  overlap, law_q, own = [], [], []
  for index, completion in enumerate(completions):
    prompt = subject.prompts[index // _SAMPLES]
    whole = [*prompt, *completion.tokens]
    log_p_TV = subject.log_probs(subject.target, whole)
    log_q_TV = None
    if subject.draft is not None:
      log_q_TV = subject.log_probs(subject.draft, whole)
    for text, block in walk(prompt, completion):
      told = block.draft_log_probs
      for i, draft in enumerate(block.drafts[: block.kept + 1]):
        place = len(text) - 1 + i
        log_p_V = log_p_TV[place]
        kept.append(i < block.kept)
        log_p.append(block.target_log_probs[i])
        log_q.append(0.0 if told is None else told[i])
        true_p.append(log_p_V[draft])
        if told is None or block.overlaps is None:
          overlap.append(np.exp(log_p_V[draft]))
        elif log_q_TV is None:
          overlap.append(block.overlaps[i])
        else:
          log_q_V = log_q_TV[place]
          overlap.append(np.exp(np.minimum(log_p_V, log_q_V)).sum())
          true_q.append(log_q_V[draft])
          q_V = np.exp(log_q_V)
          law_q.append(((q_V**2).sum(), (q_V**3).sum()))
      if block.token is not None and block.token_log_prob is not None:
        there = log_p_TV[len(text) - 1 + block.kept, block.token]
        own.append(_apart([block.token_log_prob], [there])[0])
  return Judged(
    kept_N=np.array(kept, bool),
    log_p_N=np.array(log_p, float),
    log_q_N=np.array(log_q, float),
    true_p_N=np.array(true_p, float),
    true_q_N=np.array(true_q, float) if true_q else None,
    overlap_N=np.array(overlap, float),
    law_q_NM=np.array(law_q, float) if law_q else None,
    own_M=np.array(own, float),
  )


def check(subject: Subject, judged: Judged) -> Check:
  """Whether p and q are those of the models after the same words.

  p that differs is the work of the target's cache or positions; q that
  differs, of the drafter: its cache or positions, or what it tells.
  """
  p_N = np.append(_apart(judged.log_p_N, judged.true_p_N), judged.own_M)
  q_N = None
  if judged.true_q_N is not None:
    q_N = _apart(judged.log_q_N, judged.true_q_N)
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


def _apart(
  ours: Sequence[float] | Array | np.ndarray,
  theirs: Sequence[float] | Array | np.ndarray,
) -> np.ndarray:
  """By how much log-probabilities differ; those of nothing do not."""
  a, b = (np.maximum(np.asarray(x, float), _LEAST_LOG) for x in (ours, theirs))
  return np.abs(a - b)


def _figures(apart_N: np.ndarray, limit: float) -> dict[str, float | int]:
  return {
    "count": len(apart_N),
    "wrong": int((apart_N > limit).sum()),
    "largest": float(apart_N.max(initial=0)),
    "mean": float(apart_N.mean()) if len(apart_N) else 0.0,
  }
