"""Runs prompts in one way of decoding, and takes the time."""

import dataclasses
from collections.abc import Sequence
from typing import Protocol

from specdec_jax.acceptance import GreedyRule, named_rule
from specdec_jax.bench.cells import GREEDY, Cell
from specdec_jax.buckets import Bucket
from specdec_jax.drafters import DraftModel, NoDraft, PromptLookup
from specdec_jax.generate import SpeculativeDecoder
from specdec_jax.generation import Generation
from specdec_jax.models.language_model import LanguageModel
from specdec_jax.sampling import SamplingParams
from specdec_jax.sharding import DATA, sizes
from specdec_jax.state import Engine
from specdec_jax.types import Drafter

_WARM_UP_BLOCKS = 2
_ADVANCE_SECONDS = 0.5  # Ctrl-C is answered about so often


@dataclasses.dataclass(frozen=True)
class Run:
  """What one run brought; see `records.RunRecord`.

  Attributes:
    tokens: written for each prompt.
  """

  tokens: list[list[int]]
  slots: int | None
  row_passes: int
  drafted: tuple[int, ...]
  accepted: tuple[int, ...]
  prefill: float
  first_token: float
  decode: float
  decode_tokens: int
  steps: int
  compile: float
  finish_reasons: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Limits:
  """Where texts end.

  Attributes:
    max_new_tokens: of each prompt, the most tokens written.
    ignore_eos: whether an end of sequence ends none: all are as long.
  """

  max_new_tokens: int
  ignore_eos: bool = False


class Way(Protocol):
  """A way of decoding, warm when it is timed."""

  def run(self, prompts: Sequence[Sequence[int]], seeds: Sequence[int]) -> Run:
    """Continues prompts side by side, each to its own end.

    Args:
      prompts: token ids.
      seeds: of the draws of each.
    """
    ...


@dataclasses.dataclass(frozen=True)
class Pair:
  """The models, and how drafters use them.

  Attributes:
    target: the target.
    draft: None where no cell has the drafter "model".
    vocabulary: see `DraftModel`.
    min_confidence: see `DraftModel`.
    max_ngram: see `PromptLookup`.
  """

  target: LanguageModel
  draft: LanguageModel | None = None
  vocabulary: str = "same"
  min_confidence: float = 0.0
  max_ngram: int = 3

  def drafter(self, cell: Cell) -> Drafter:
    """The drafter of a cell, bound to the target.

    Raises:
      ValueError: there is none of this name, or no draft for it.
    """
    count = cell.num_draft_tokens
    drafter: Drafter
    if cell.is_plain:
      drafter = NoDraft()
    elif cell.drafter == "lookup":
      drafter = PromptLookup(count, self.max_ngram)
    elif cell.drafter != "model":
      raise ValueError(
        f"drafter: expected model or lookup, got {cell.drafter!r}"
      )
    elif self.draft is None:
      raise ValueError("drafter model: expected a draft model, got none")
    else:
      drafter = DraftModel(
        self.draft, count, self.min_confidence, self.vocabulary
      )
    return drafter.bind(self.target)

  def engine(self, cell: Cell) -> Engine:
    """What the programs of a cell are compiled for."""
    rule = GreedyRule() if cell.rule == GREEDY else named_rule(cell.rule)
    return Engine(self.target.network, self.drafter(cell).split()[0], rule)

  def bucket(self, cell: Cell, limit: int) -> Bucket:
    """The shape of a generation.

    Args:
      cell: how.
      limit: prompt and new tokens together, at most.
    """
    shards = sizes(self.target.mesh)[DATA]
    return Bucket.of(cell.batch_size, limit, self.engine(cell), shards)


class Ours:
  """A cell of this library."""

  def __init__(self, pair: Pair, cell: Cell, limits: Limits):
    """Makes the decoder.

    Args:
      pair: the models.
      cell: how to decode.
      limits: where texts end.
    """
    rule = GreedyRule() if cell.rule == GREEDY else cell.rule
    self._decoder = SpeculativeDecoder(pair.target, pair.drafter(cell), rule)
    self._pair, self._cell, self._limits = pair, cell, limits

  def run(self, prompts: Sequence[Sequence[int]], seeds: Sequence[int]) -> Run:
    generation = self._start(prompts, seeds)
    compile_seconds = generation.result().timing.compile
    if compile_seconds:
      # What runs for the first time is slower: it is not this run that counts.
      generation.advance(_WARM_UP_BLOCKS)
      generation = self._start(prompts, seeds)
    generation.advance(1)
    first = generation.result().timing
    blocks = max(1, int(_ADVANCE_SECONDS / max(first.decode, 1e-6)))
    while not generation.done:
      generation.advance(blocks)
    result = generation.result()
    limit = max(map(len, prompts)) + self._limits.max_new_tokens
    return Run(
      tokens=result.tokens,
      slots=self._pair.bucket(self._cell, limit).slots,
      row_passes=result.stats.target_passes,
      drafted=result.stats.drafted_per_position,
      accepted=result.stats.accepted_per_position,
      prefill=result.timing.prefill,
      first_token=result.timing.prefill + first.decode,
      decode=result.timing.decode,
      decode_tokens=result.stats.new_tokens,
      steps=max(stats.target_passes for stats in result.row_stats),
      compile=compile_seconds,
      finish_reasons=tuple(map(str, result.finish_reasons)),
    )

  def _start(
    self, prompts: Sequence[Sequence[int]], seeds: Sequence[int]
  ) -> Generation:
    return self._decoder.start(
      [list(prompt) for prompt in prompts],
      max_new_tokens=self._limits.max_new_tokens,
      sampling=[
        SamplingParams(
          temperature=self._cell.temperature,
          seed=seed,
          ignore_eos=self._limits.ignore_eos,
        )
        for seed in seeds
      ],
      batch_size=len(prompts),
    )
