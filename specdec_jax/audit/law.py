"""The law of sampled text: speculative against plain, many seeds of each."""

from collections.abc import Hashable, Sequence

from specdec_jax.acceptance import TokenRule
from specdec_jax.audit import chance
from specdec_jax.audit.checks import DRAFTER, RULE, TARGET_CACHE, Check
from specdec_jax.audit.subject import Subject
from specdec_jax.drafters import NoDraft
from specdec_jax.sampling import SamplingParams
from specdec_jax.types import AcceptanceRule, Drafter

_PROMPTS = 4  # more of them leave fewer samples, and rarer outcomes, to each
_ENDED = -1


def num_tests(width: int) -> int:
  """How many tests the check makes, for drafts of K = `width`."""
  return len(_spans(width))


def _spans(width: int) -> dict[str, slice]:
  """Which tokens of K + 2 are looked at together."""
  spans = {"token 1": slice(0, 1)}
  for i in range(1, width + 2):
    spans[f"tokens {i}-{i + 1}"] = slice(i - 1, i + 1)
  # A fault may leave every pair right: noise that is used again does.
  spans[f"tokens 1-{width + 2}"] = slice(0, width + 2)
  return spans


def check(subject: Subject) -> Check:
  """Distributions of the first token, of neighbours and of whole texts.

  Texts have K + 2 tokens: the first block is whole, and so is the second where
  the first draft was rejected. A shorter one may make up for a fault. Seeds
  are disjoint: with `gumbel`, the same seeds would give the same texts.
  """
  prompts = subject.prompts[:_PROMPTS]
  per_prompt = -(-subject.num_samples // len(prompts))
  rows = subject.rows
  if per_prompt > rows:
    per_prompt = -(-per_prompt // rows) * rows
  places = []
  for index, prompt in enumerate(prompts):
    seed = subject.seed + 2 * index * per_prompt
    ours = _samples(
      subject, subject.drafter, subject.rule, prompt, per_prompt, seed
    )
    # Plain decoding takes the library's own rule: a broken one may be wrong
    # without drafts as well.
    plain = _samples(
      subject,
      NoDraft(),
      TokenRule(),
      prompt,
      per_prompt,
      seed + per_prompt,
    )
    places.append((ours, plain))
  found = {
    name: chance.compare(
      [(_cut(a, span), _cut(b, span)) for a, b in places], subject.level
    )
    for name, span in _spans(subject.width).items()
  }
  name, worst = min(found.items(), key=lambda item: item[1].p_value)
  passed = worst.p_value >= subject.level
  first = found["token 1"]
  says = (
    f"{len(prompts) * per_prompt} samples each; smallest p-value of "
    f"{len(found)} tests {worst.p_value:.2g} ({name}; below "
    f"{subject.level:.2g} fails); "
  )
  if passed:
    says += (
      f"total variation of token 1 between {first.low:.2g} and {first.high:.2g}"
    )
  else:
    says += (
      f"total variation of {name} between {worst.low:.2g} and {worst.high:.2g}"
    )
  return Check(
    "sampled law",
    passed=passed,
    says=says,
    evidence={
      "samples": len(prompts) * per_prompt,
      "prompts": len(prompts),
      "level": subject.level,
      "tests": {name: it._asdict() for name, it in found.items()},
    },
    faults=() if passed else (RULE, DRAFTER, TARGET_CACHE),
  )


def _samples(
  subject: Subject,
  drafter: Drafter,
  rule: AcceptanceRule,
  prompt: tuple[int, ...],
  count: int,
  seed: int,
) -> list[tuple[int, ...]]:
  """Texts of K + 2 tokens, those that ended sooner filled up."""
  length = subject.width + 2
  texts: list[tuple[int, ...]] = []
  while len(texts) < count:
    sampling = SamplingParams(temperature=1.0, seed=(seed + len(texts)) % 2**32)
    texts += [
      (*it.tokens, *[_ENDED] * (length - len(it.tokens)))
      for it in subject.run(
        drafter,
        rule,
        [prompt],
        sampling,
        max_new_tokens=length,
        num_samples=min(subject.rows, count),
      )
    ]
  return texts


def _cut(texts: Sequence[tuple[int, ...]], span: slice) -> list[Hashable]:
  return [text[span] for text in texts]
