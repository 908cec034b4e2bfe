"""Strings in, strings out."""

import dataclasses
from collections.abc import Iterator, Sequence

from specdec_jax.acceptance import named_rule
from specdec_jax.drafters import NoDraft
from specdec_jax.generation import Generation
from specdec_jax.models.language_model import LanguageModel
from specdec_jax.prompts import Prompt, Request, check_request, encode_all
from specdec_jax.results import Chunk, GenerationResult
from specdec_jax.sampling import SamplingParams, is_integer
from specdec_jax.types import AcceptanceRule, Drafter

_DEFAULT_MAX_NEW_TOKENS = 128


class SpeculativeDecoder:
  """Generates from a target, sooner with the help of a drafter.

  Programs are compiled at the first use of a bucket (batch and cache size) and
  kept. A decoder holds no other state: calls do not depend on one another.

  Args:
    target: the model whose law the output has.
    drafter: where the guesses come from; None decodes plainly.
    rule: "block", "token", "gumbel", the lossy "threshold", "typical" and
      "lenient", or a rule object.

  Raises:
    ValueError: the drafter cannot draft for this target.
  """

  def __init__(
    self,
    target: LanguageModel,
    drafter: Drafter | None = None,
    rule: str | AcceptanceRule = "block",
  ) -> None:
    if isinstance(drafter, LanguageModel):
      raise ValueError(
        "drafter: expected a drafter, got a language model; wrap it: "
        "DraftModel(model, num_draft_tokens=4)"
      )
    self.target = target
    drafter = NoDraft() if drafter is None else drafter
    self.drafter = drafter.bind(target)
    self.rule = named_rule(rule)

  def generate(
    self,
    prompts: Prompt | Sequence[Prompt],
    *,
    max_new_tokens: int = _DEFAULT_MAX_NEW_TOKENS,
    sampling: SamplingParams | Sequence[SamplingParams] = SamplingParams(),
    num_samples: int = 1,
    batch_size: int | None = None,
    trace: bool = False,
  ) -> GenerationResult:
    """Generates for prompts, each to its own end.

    Args:
      prompts: one prompt or several: text, token ids, or chat messages.
      max_new_tokens: for prompts whose SamplingParams leave it open.
      sampling: one for each prompt, or one for all. Of one for all, and of
        that of a prompt with several samples, the n-th to use it takes
        seed + n (modulo 2**32).
      num_samples: how many continuations of each prompt; they stand one after
        another in the result.
      batch_size: how many are generated side by side; all of them if None.
        The next takes the place of each that ends.
      trace: whether completions shall have their `blocks`.

    Raises:
      ValueError: a prompt is empty or too long, or the cache does not fit.
    """
    generation = self.start(
      prompts,
      max_new_tokens=max_new_tokens,
      sampling=sampling,
      num_samples=num_samples,
      batch_size=batch_size,
      trace=trace,
    )
    generation.advance()
    return generation.result()

  def stream(
    self,
    prompt: Prompt,
    *,
    max_new_tokens: int = _DEFAULT_MAX_NEW_TOKENS,
    sampling: SamplingParams = SamplingParams(),
    blocks: int = 1,
  ) -> Iterator[Chunk]:
    """Generates for one prompt and yields after every `blocks` blocks.

    The chunks together are what `generate` returns.

    Raises:
      ValueError: as `generate`, or there are several prompts.
    """
    if not is_integer(blocks) or blocks < 1:
      raise ValueError(f"blocks: expected at least 1, got {blocks}")
    prompts = encode_all(prompt, self.target)
    if len(prompts) != 1:
      raise ValueError(
        f"stream: expected one prompt, got {len(prompts)}; use generate"
      )
    return self.start(
      prompts, max_new_tokens=max_new_tokens, sampling=sampling
    ).stream(blocks)

  def start(
    self,
    prompts: Prompt | Sequence[Prompt],
    *,
    max_new_tokens: int = _DEFAULT_MAX_NEW_TOKENS,
    sampling: SamplingParams | Sequence[SamplingParams] = SamplingParams(),
    num_samples: int = 1,
    batch_size: int | None = None,
    trace: bool = False,
  ) -> Generation:
    """Compiles, prefills and returns the generation, not yet advanced.

    The arguments are those of `generate`; this is for callers that want to
    stop in between.
    """
    for name, value in (
      ("max_new_tokens", max_new_tokens),
      ("num_samples", num_samples),
      ("batch_size", 1 if batch_size is None else batch_size),
    ):
      if not is_integer(value) or value < 1:
        raise ValueError(
          f"{name}: expected an integer of at least 1, got {value}"
        )
    rows = encode_all(prompts, self.target)
    requests = []
    for index, (row, (p, seed)) in enumerate(
      zip(rows, _per_prompt(sampling, len(rows), num_samples), strict=True)
    ):
      new = p.max_new_tokens or max_new_tokens
      check_request(f"prompt {index}", len(row), new, p, self.target)
      requests += [
        Request(tuple(row), p, new, (seed + sample) % 2**32)
        for sample in range(num_samples)
      ]
    return Generation(
      self.target,
      self.drafter,
      self.rule,
      requests,
      min(batch_size or len(requests), len(requests)),
      traced=trace,
    )

  def warmup(
    self,
    prompt_length: int,
    *,
    max_new_tokens: int = _DEFAULT_MAX_NEW_TOKENS,
    sampling: SamplingParams = SamplingParams(),
    batch_size: int = 1,
  ) -> float:
    """Compiles ahead what a generation of about this size needs.

    Programs that take in a prompt for one that has ended, or for another
    sample, come later.

    Args:
      prompt_length: of the longest prompt, in tokens.
      max_new_tokens: the most tokens to generate.
      sampling: what it uses decides which programs are needed, its numbers do
        not.
      batch_size: how many prompts are generated side by side.

    Returns:
      The seconds that compiling took; 0 if all was there already.
    """
    size = self.target.network.vocab_size
    prompts = [[row % size] * prompt_length for row in range(batch_size)]
    generation = self.start(
      prompts, max_new_tokens=max_new_tokens, sampling=sampling
    )
    return generation.result().timing.compile


def _per_prompt(
  sampling: SamplingParams | Sequence[SamplingParams],
  prompts: int,
  num_samples: int,
) -> list[tuple[SamplingParams, int]]:
  """Of each prompt the parameters, with seed 0, and the first sample's seed."""
  if isinstance(sampling, SamplingParams):
    shared = dataclasses.replace(sampling, seed=0)
    return [
      (shared, sampling.seed + prompt * num_samples)
      for prompt in range(prompts)
    ]
  if len(sampling) != prompts:
    raise ValueError(
      "sampling: expected one SamplingParams, or one for each of the "
      f"{prompts} prompts, got {len(sampling)}"
    )
  return [(dataclasses.replace(p, seed=0), p.seed) for p in sampling]
