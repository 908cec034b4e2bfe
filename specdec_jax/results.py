"""What a generation gives back."""

import dataclasses
import functools

from specdec_jax.stats import Stats


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
class GenerationResult:
  """What came out of a batch; every list has one entry per prompt.

  Attributes:
    texts: generated text, without prompt and EOS; empty where the target has
      no tokenizer.
    tokens: generated ids, an EOS among them.
    finish_reasons: "eos", "length", "nonfinite" (the target's logits were not
      finite), or None for a row that was interrupted.
    drafted: for each token, whether the draft wrote it.
    log_probs: for each token, its log-probability under the target's raw
      logits; None for rows that did not ask for it.
    row_stats: statistics of each row.
    stats: their sum.
    timing: where the time went.
  """

  texts: list[str]
  tokens: list[list[int]]
  finish_reasons: list[str | None]
  drafted: list[list[bool]]
  log_probs: list[list[float] | None]
  row_stats: list[Stats]
  timing: Timing

  @functools.cached_property
  def stats(self) -> Stats:
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
    pieces: the text of each of them; half a character counts to the token
      that completes it.
    finish_reason: set in the last chunk.
  """

  text: str
  tokens: list[int]
  drafted: list[bool]
  pieces: list[str]
  finish_reason: str | None
