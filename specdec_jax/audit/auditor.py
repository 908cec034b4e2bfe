"""Runs the checks on a pair."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from specdec_jax.audit import (
  acceptance,
  contexts,
  identity,
  law,
  self_draft,
)
from specdec_jax.audit.checks import Audit
from specdec_jax.audit.subject import Subject
from specdec_jax.generate import SpeculativeDecoder
from specdec_jax.models.language_model import LanguageModel
from specdec_jax.prompts import Prompt, encode_all
from specdec_jax.sampling import is_integer
from specdec_jax.types import AcceptanceRule, Drafter

PROMPTS = (
  "def fibonacci(n):\n",
  "class Stack:\n  def __init__(self):\n",
  "import os\nimport sys\n\n\ndef main(",
  "for i in range(10):\n  print(",
  "def is_prime(n):\n  if n < 2:\n    return",
  "with open(path) as file:\n  for line in file:\n",
  "result = [x for x in",
  "try:\n  value = int(text)\nexcept",
)
_LEAST_SAMPLES = 100


def audit(
  target: LanguageModel,
  drafter: Drafter,
  rule: str | AcceptanceRule = "block",
  prompts: Prompt | Sequence[Prompt] = PROMPTS,
  *,
  max_new_tokens: int = 32,
  num_samples: int = 2000,
  seed: int = 0,
  alarm: float = 1e-3,
  tell: Callable[[str], None] = lambda _: None,
) -> Audit:
  """Certifies that a pair is lossless on this machine, or says what is not.

  A lossy rule is audited as any other. It fails, and is named.

  Args:
    target: the model whose law the text must have.
    drafter: what drafts for it.
    rule: of acceptance, by name or as an object.
    prompts: to try it on.
    max_new_tokens: of the texts; those of the sampled law have K + 1.
    num_samples: how many texts with drafts, and as many without, the sampled
      law is judged by.
    seed: the first of the texts' seeds; the same one gives the same audit.
    alarm: how probable it may be that a right pair fails by chance; shared
      out evenly among the tests (Bonferroni).
    tell: is told what goes on, since it takes a while.

  Raises:
    ValueError: the drafter drafts nothing or does not fit the target, an
      argument is out of range, or the target's logits are not finite.
  """
  begin = time.perf_counter()
  check_options(num_samples, seed)
  if not is_integer(max_new_tokens) or max_new_tokens < 1:
    raise ValueError(
      f"max_new_tokens: expected at least 1, got {max_new_tokens}"
    )
  if not 0 < alarm < 1:
    raise ValueError(f"alarm: expected a probability in (0, 1), got {alarm}")
  decoder = SpeculativeDecoder(target, drafter, rule)
  width = decoder.drafter.num_draft_tokens
  if width < 1:
    raise ValueError(
      "drafter: expected one that drafts, got plain decoding, which is what "
      "an audit compares with"
    )
  # The last is the self-draft's.
  tests = law.num_tests(width) + acceptance.NUM_TESTS + 1
  subject = Subject(
    target=target,
    drafter=decoder.drafter,
    rule=decoder.rule,
    prompts=tuple(map(tuple, encode_all(prompts, target))),
    max_new_tokens=max_new_tokens,
    num_samples=num_samples,
    seed=seed,
    level=alarm / tests,
  )
  checks = []
  for told, check in (
    ("the target drafts for itself", self_draft.check),
    ("greedy text", identity.greedy),
    ("text with shared noise", identity.gumbel),
    ("sampled text", law.check),
  ):
    tell(told)
    checks.append(check(subject))
  tell("p and q from scratch")
  judged = contexts.judge(subject)
  checks += [contexts.check(subject, judged)]
  checks += [acceptance.check(subject, judged)]
  tell("")
  return Audit(
    _described(subject), tuple(checks), alarm, time.perf_counter() - begin
  )


def check_options(num_samples: int, seed: int) -> None:
  """Checks what costs nothing to check, before models are loaded.

  Raises:
    ValueError: a value is out of range.
  """
  if not is_integer(num_samples) or num_samples < _LEAST_SAMPLES:
    raise ValueError(
      f"num_samples: expected at least {_LEAST_SAMPLES}, got {num_samples}"
    )
  if not is_integer(seed) or not 0 <= seed < 2**32:
    raise ValueError(f"seed: expected an integer in [0, 2**32), got {seed}")


def _described(subject: Subject) -> dict[str, Any]:
  return {
    "target": subject.target.name,
    "draft": subject.draft.name if subject.draft else None,
    "drafter": type(subject.drafter).__name__,
    "rule": type(subject.rule).__name__,
    "num_draft_tokens": subject.width,
    "dtype": subject.dtype,
    "prompts": len(subject.prompts),
    "max_new_tokens": subject.max_new_tokens,
    "num_samples": subject.num_samples,
    "seed": subject.seed,
  }
