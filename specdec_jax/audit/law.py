"""The law of sampled text: speculative against plain, many seeds of each."""

from collections.abc import Hashable, Sequence

from specdec_jax.acceptance import TokenRule
from specdec_jax.audit import chance
from specdec_jax.audit.checks import DRAFTER, RULE, TARGET_CACHE, Check
from specdec_jax.audit.subject import Subject
from specdec_jax.buckets import batch_within
from specdec_jax.drafters import NoDraft
from specdec_jax.sampling import SamplingParams
from specdec_jax.types import AcceptanceRule, Drafter

_PROMPTS = 4  # more of them leave fewer samples, and rarer outcomes, to each
_MOST_BYTES = 2**28  # of one array of laws, [B, K + 1, V]
_MOST_ROWS = 1024
_ENDED = -1


def num_tests(width: int) -> int:
  """How many tests the check makes, for drafts of K = `width`."""
  return width + 1


def check(subject: Subject) -> Check:
  """Distributions of the first token and of each pair of neighbours.

  Texts have K + 1 tokens, so that first blocks are whole, and what follows a
  rejection is among them. Seeds are disjoint: with `gumbel`, the same seeds
  would give the same texts.
  """
  prompts = subject.prompts[:_PROMPTS]
  per_prompt = -(-subject.num_samples // len(prompts))
  law_bytes = 4 * (subject.width + 1) * subject.target.network.vocab_size
  rows = batch_within(min(_MOST_ROWS, max(_MOST_BYTES // law_bytes, 1)), 1)
  if per_prompt > rows:
    per_prompt = -(-per_prompt // rows) * rows
  places = []
  for index, prompt in enumerate(prompts):
    seed = subject.seed + 2 * index * per_prompt
    ours = _samples(
      subject, subject.drafter, subject.rule, prompt, per_prompt, rows, seed
    )
    # Plain decoding takes the library's own rule: a broken one may be wrong
    # without drafts as well.
    plain = _samples(
      subject,
      NoDraft(),
      TokenRule(),
      prompt,
      per_prompt,
      rows,
      seed + per_prompt,
    )
    places.append((ours, plain))
  spans = {"token 1": slice(0, 1)} | {
    f"tokens {i}-{i + 1}": slice(i - 1, i + 1)
    for i in range(1, subject.width + 1)
  }
  found = {
    name: chance.compare(
      [(_cut(a, span), _cut(b, span)) for a, b in places], subject.level
    )
    for name, span in spans.items()
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
  rows: int,
  seed: int,
) -> list[tuple[int, ...]]:
  """Texts of K + 1 tokens, those that ended sooner filled up."""
  length = subject.width + 1
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
        num_samples=min(rows, count),
      )
    ]
  return texts


def _cut(texts: Sequence[tuple[int, ...]], span: slice) -> list[Hashable]:
  return [text[span] for text in texts]
