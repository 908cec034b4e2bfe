"""Strings in, strings out: prompts, buckets, streaming, results."""

import dataclasses
import functools
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specdec_jax import decode, memory, sharding
from specdec_jax.acceptance import GreedyRule, named_rule
from specdec_jax.drafters import NoDraft
from specdec_jax.models.language_model import LanguageModel
from specdec_jax.programs import create_state, state_program
from specdec_jax.prompts import Prompt, encode_all
from specdec_jax.sampling import Law, SamplingParams
from specdec_jax.stats import Stats
from specdec_jax.stopping import Finish
from specdec_jax.types import AcceptanceRule, Drafter

_DEFAULT_MAX_NEW_TOKENS = 128
_ALL = np.int32(2**31 - 1)


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


class SpeculativeDecoder:
  """Generates from a target, sooner with the help of a drafter.

  Programs are compiled at the first use of a bucket (batch and cache size) and
  kept. A decoder holds no other state: calls do not depend on one another.

  Args:
    target: the model whose law the output has.
    drafter: where the guesses come from; None decodes plainly.
    rule: "block", "token", "gumbel", the lossy "threshold", or a rule object.

  Raises:
    ValueError: the drafter cannot draft for this target.
  """

  def __init__(
    self,
    target: LanguageModel,
    drafter: Drafter | None = None,
    rule: str | AcceptanceRule = "block",
  ):
    self.target = target
    self.drafter = NoDraft() if drafter is None else drafter
    self.rule = named_rule(rule)
    self.drafter.check(target)

  def generate(
    self,
    prompts: Prompt | Sequence[Prompt],
    *,
    max_new_tokens: int = _DEFAULT_MAX_NEW_TOKENS,
    sampling: SamplingParams | Sequence[SamplingParams] = SamplingParams(),
  ) -> GenerationResult:
    """Generates for a batch of prompts, each to its own end.

    Args:
      prompts: one prompt or several: text, token ids, or chat messages.
      max_new_tokens: for prompts whose SamplingParams leave it open.
      sampling: one for each prompt, or one for all, of which prompt i takes
        seed + i (modulo 2**32).

    Raises:
      ValueError: a prompt is empty or too long, or the cache does not fit.
    """
    generation = self.start(
      prompts, max_new_tokens=max_new_tokens, sampling=sampling
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
    """
    generation = self.start(
      prompt, max_new_tokens=max_new_tokens, sampling=sampling
    )
    yield from generation.stream(blocks)

  def start(
    self,
    prompts: Prompt | Sequence[Prompt],
    *,
    max_new_tokens: int = _DEFAULT_MAX_NEW_TOKENS,
    sampling: SamplingParams | Sequence[SamplingParams] = SamplingParams(),
  ) -> "Generation":
    """Compiles, prefills and returns the generation, not yet advanced.

    The arguments are those of `generate`; this is for callers that want to
    stop in between.
    """
    rows = encode_all(prompts, self.target)
    params = _per_row(sampling, len(rows))
    limits = [
      len(row) + (p.max_new_tokens or max_new_tokens)
      for row, p in zip(rows, params, strict=True)
    ]
    self._check_lengths(rows, limits, max_new_tokens)
    return Generation(self, rows, params, limits)

  def _check_lengths(
    self, rows: list[list[int]], limits: list[int], max_new_tokens: int
  ) -> None:
    if max_new_tokens < 1:
      raise ValueError(
        f"max_new_tokens: expected at least 1, got {max_new_tokens}"
      )
    context = self.target.network.max_length
    for index, (row, limit) in enumerate(zip(rows, limits, strict=True)):
      if len(row) >= context:
        raise ValueError(
          f"prompt {index} has {len(row)} tokens, but the context of "
          f"{self.target.name} holds {context} and one must be left to "
          "generate; shorten the prompt"
        )
      if limit > context:
        raise ValueError(
          f"prompt {index} has {len(row)} tokens and {limit - len(row)} new "
          f"ones were asked for, but the context of {self.target.name} holds "
          f"{context}; set max_new_tokens to at most {context - len(row)}"
        )
    horizon = self.drafter.max_length
    if horizon is not None and max(limits) > horizon:
      warnings.warn(
        f"the draft's context of {horizon} tokens is shorter than this "
        f"generation ({max(limits)}): past it nothing is drafted, and tokens "
        "come at the speed of plain decoding",
        stacklevel=4,
      )


class Generation:
  """A batch on its way: advance it, read it, stop whenever you like.

  Made by `SpeculativeDecoder.start`.
  """

  def __init__(
    self,
    decoder: SpeculativeDecoder,
    rows: list[list[int]],
    params: list[SamplingParams],
    limits: list[int],
  ):
    self._target = decoder.target
    self._params = params
    self._starts = [len(row) for row in rows]
    drafter, draft_weights = decoder.drafter.split()
    all_greedy = all(p.temperature == 0 for p in params)
    self._engine = decode.Engine(
      decoder.target.network,
      drafter,
      GreedyRule() if all_greedy else decoder.rule,
    )
    self._weights = decode.Weights(decoder.target.params, draft_weights)
    bucket = _Bucket.of(
      rows, limits, self._engine, decoder.target.mesh.shape["data"]
    )
    state = self._initial_state(rows, limits, bucket)

    num_chunks = jnp.int32(-(-max(n - 1 for n in self._starts) // bucket.chunk))
    fill = state_program(
      decode.prefill,
      (self._engine, bucket.chunk),
      self._weights,
      state,
      num_chunks,
    )
    self._run = state_program(
      decode.run, (self._engine,), self._weights, state, jnp.int32(0)
    )
    self._compile_seconds = fill.seconds + self._run.seconds
    begin = time.perf_counter()
    self._state = fill.call(self._weights, state, num_chunks)
    jax.block_until_ready(self._state)
    self._prefill_seconds = time.perf_counter() - begin
    self._decode_seconds = 0.0

  def _initial_state(self, rows, limits, bucket):
    """The state before prefill, on the mesh."""
    fields = _pack(rows, limits, self._params, self._target.eos_ids, bucket)
    static = (self._engine, any(p.logprobs for p in self._params))
    mesh = self._target.mesh
    shapes = jax.eval_shape(
      functools.partial(decode.init_state, *static), **fields
    )
    shardings = sharding.of_state(mesh, shapes)
    memory.check_fits(
      shapes, shardings, bucket.batch, bucket.slots, mesh.devices.flat[0]
    )
    return create_state(decode.init_state, static, shardings, **fields)

  @property
  def done(self) -> bool:
    """Whether every row has ended."""
    return not bool(self._state.active_B.any())

  def advance(self, blocks: int | None = None) -> None:
    """Runs the loop for at most `blocks` blocks; to the end by default."""
    begin = time.perf_counter()
    steps = jnp.int32(_ALL if blocks is None else blocks)
    self._state = self._run.call(self._weights, self._state, steps)
    jax.block_until_ready(self._state)
    self._decode_seconds += time.perf_counter() - begin

  def stream(self, blocks: int = 1) -> Iterator[Chunk]:
    """Advances the only row to its end, and yields what came each time."""
    if len(self._starts) != 1:
      raise ValueError(
        f"stream: expected one prompt, got {len(self._starts)}; use generate"
      )
    tokenizer = self._target.tokenizer
    text = tokenizer.stream() if tokenizer else None
    seen = self._starts[0]
    reason = None
    while reason is None:
      self.advance(blocks)
      state = self._state
      length = int(state.length_B[0])
      tokens = np.asarray(state.tokens_BS[0])[seen:length].tolist()
      drafted = np.asarray(state.drafted_BS[0])[seen:length].tolist()
      reason = _reason(int(state.finish_B[0]))
      seen = length
      shown = tokens[:-1] if reason == "eos" else tokens
      pieces = text.push(shown) if text else [""] * len(shown)
      if reason and text:
        rest = text.flush()
        pieces = [*pieces[:-1], pieces[-1] + rest] if pieces else pieces
      if reason == "eos":
        pieces = [*pieces, "" if pieces or not text else rest]
      yield Chunk("".join(pieces), tokens, drafted, pieces, reason)

  def result(self) -> GenerationResult:
    """What there is so far; rows still running have no finish reason."""
    state = self._state
    rows = len(self._starts)
    length_B, finish_B, tokens_BS, drafted_BS, log_probs_BS = jax.device_get(
      (
        state.length_B,
        state.finish_B,
        state.tokens_BS,
        state.drafted_BS,
        state.log_probs_BS,
      )
    )

    def new(array_BS, row):
      return array_BS[row, self._starts[row] : length_B[row]].tolist()

    tokens = [new(tokens_BS, row) for row in range(rows)]
    reasons = [_reason(int(finish_B[row])) for row in range(rows)]
    return GenerationResult(
      texts=[self._text(*pair) for pair in zip(tokens, reasons, strict=True)],
      tokens=tokens,
      finish_reasons=reasons,
      drafted=[new(drafted_BS, row) for row in range(rows)],
      log_probs=[
        new(log_probs_BS, row) if self._params[row].logprobs else None
        for row in range(rows)
      ],
      row_stats=Stats.of_rows(state.counts)[:rows],
      timing=Timing(
        self._compile_seconds, self._prefill_seconds, self._decode_seconds
      ),
    )

  def _text(self, tokens: list[int], reason: str | None) -> str:
    if not self._target.tokenizer:
      return ""
    return self._target.tokenizer.decode(
      tokens[:-1] if reason == "eos" else tokens
    )


def _reason(finish: int) -> str | None:
  return None if finish == Finish.RUNNING else Finish(finish).name.lower()


def _per_row(
  sampling: SamplingParams | Sequence[SamplingParams], rows: int
) -> list[SamplingParams]:
  if isinstance(sampling, SamplingParams):
    return [
      dataclasses.replace(sampling, seed=(sampling.seed + row) % 2**32)
      for row in range(rows)
    ]
  if len(sampling) != rows:
    raise ValueError(
      f"sampling: expected one SamplingParams, or one for each of the {rows} "
      f"prompts, got {len(sampling)}"
    )
  return list(sampling)


@dataclasses.dataclass(frozen=True)
class _Bucket:
  """The shapes that a program is compiled for."""

  batch: int
  slots: int
  chunk: int

  @classmethod
  def of(cls, rows, limits, engine: decode.Engine, data_shards: int):
    batch = _power_of_two(-(-len(rows) // data_shards)) * data_shards
    slots = _slots(max(limits) + engine.spare_slots)
    longest = max(len(row) for row in rows)
    chunk = min(_CHUNK, slots & -slots, _power_of_two(max(longest - 1, 16)))
    return cls(batch, slots, chunk)


_CHUNK = 256  # the most tokens of a prompt that one pass takes


def _power_of_two(count: int) -> int:
  """The least power of two of at least `count`."""
  return 1 << (count - 1).bit_length()


def _slots(count: int) -> int:
  """The least cache size of at least `count`: 2**n or 1.5 * 2**n."""
  size = max(64, _power_of_two(count))
  return size * 3 // 4 if count <= size * 3 // 4 and size > 64 else size


def _pack(
  rows: list[list[int]],
  limits: list[int],
  params: list[SamplingParams],
  eos_ids: Sequence[int],
  bucket: _Bucket,
) -> dict[str, Any]:
  """The batch as arrays; rows that fill up the bucket end at once."""
  spare = bucket.batch - len(rows)

  def column(values, dtype, fill):
    return jnp.asarray(list(values) + [fill] * spare, dtype)

  tokens_BS = np.zeros((bucket.batch, bucket.slots), np.int32)
  for index, row in enumerate(rows):
    tokens_BS[index, : len(row)] = row
  # A power of two, so that another model's EOS ids rarely mean a new program.
  eos_E = np.full(_power_of_two(max(len(eos_ids), 4)), -1, np.int32)
  eos_E[: len(eos_ids)] = eos_ids
  return {
    "tokens_BS": jnp.asarray(tokens_BS),
    "length_B": column(map(len, rows), jnp.int32, 1),
    "limit_B": column(limits, jnp.int32, 1),
    "seed_B": column((p.seed for p in params), jnp.uint32, 0),
    "eos_BE": jnp.asarray(np.tile(eos_E, (bucket.batch, 1))),
    "law": Law(
      column((p.temperature for p in params), jnp.float32, 0),
      column((p.top_k for p in params), jnp.int32, 0),
      column((p.top_p for p in params), jnp.float32, 1),
      column((p.min_p for p in params), jnp.float32, 0),
    ),
  }
