"""What a generation gives back."""

import dataclasses
import functools

from specdec_jax.stats import Stats
from specdec_jax.trace import Block


@dataclasses.dataclass(frozen=True)
class Timing:
  """Where the time of a generation went, in seconds.

  Attributes:
    compile: compiling programs; 0 when the bucket was compiled before.
    prefill: running the prompts through the models.
    decode: the loop, all rows together.
  """

  compile: float
  prefill: float
  decode: float


@dataclasses.dataclass(frozen=True)
class Completion:
  """What was generated for one prompt.

  Attributes:
    tokens: generated ids, the one that ended the text among them.
    pieces: the text of each of them, up to what ended it: the stop string or
      the EOS. Text that was held back, half a character or what might have
      become a stop string, counts to the token that sets it free. Empty where
      the target has no tokenizer.
    finish_reason: "eos", "stop", "length", "nonfinite" (the target's logits
      were not finite), or None for what was interrupted.
    drafted: for each token, whether the draft wrote it.
    log_probs: for each token, its log-probability under the target's raw
      logits; None if not asked for.
    blocks: what each step was made of; None if not asked for.
    stats: statistics.
    seconds: of the loop while this was in it, with all that ran beside it.
  """

  tokens: list[int]
  pieces: list[str]
  finish_reason: str | None
  drafted: list[bool]
  log_probs: list[float] | None
  blocks: list[Block] | None
  stats: Stats
  seconds: float

  @property
  def text(self) -> str:
    """What was generated, without the prompt."""
    return "".join(self.pieces)


@dataclasses.dataclass(frozen=True)
class GenerationResult:
  """What came out of a batch.

  Attributes:
    completions: one for each prompt, or for each sample of each prompt.
    timing: where the time went.
  """

  completions: list[Completion]
  timing: Timing

  @property
  def texts(self) -> list[str]:
    return [completion.text for completion in self.completions]

  @property
  def tokens(self) -> list[list[int]]:
    return [completion.tokens for completion in self.completions]

  @property
  def finish_reasons(self) -> list[str | None]:
    return [completion.finish_reason for completion in self.completions]

  @property
  def drafted(self) -> list[list[bool]]:
    return [completion.drafted for completion in self.completions]

  @property
  def log_probs(self) -> list[list[float] | None]:
    return [completion.log_probs for completion in self.completions]

  @property
  def row_stats(self) -> list[Stats]:
    """Statistics of each completion."""
    return [completion.stats for completion in self.completions]

  @functools.cached_property
  def stats(self) -> Stats:
    """Their sum."""
    return Stats.total(self.row_stats)

  @property
  def tokens_per_second(self) -> float:
    """Tokens of all rows over the seconds of the loop, prefill apart."""
    return self.stats.new_tokens / max(self.timing.decode, 1e-9)


@dataclasses.dataclass(frozen=True)
class Chunk:
  """A piece of streamed output.

  Attributes:
    text: the new text.
    tokens: the new ids.
    drafted: for each of them, whether the draft wrote it.
    pieces: the text of each of them, as in `Completion`.
    finish_reason: set in the last chunk.
  """

  text: str
  tokens: list[int]
  drafted: list[bool]
  pieces: list[str]
  finish_reason: str | None
