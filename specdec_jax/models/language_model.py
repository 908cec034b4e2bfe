"""A network, its weights, and how it reads text."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from specdec_jax.host import to_host
from specdec_jax.types import Array, Network, PyTree

if TYPE_CHECKING:
  from specdec_jax.loading.tokenizer import Tokenizer

# `logits` pads to a multiple of this, so that few lengths compile.
_BUCKET = 32


@dataclasses.dataclass(frozen=True)
class LanguageModel:
  """What `load` returns.

  Attributes:
    network: what programs are compiled for.
    params: its weights, on `mesh`.
    tokenizer: how it reads text; None when only token ids can be used.
    eos_ids: the tokens that end a sequence, all below V.
    mesh: where it runs.
    name: what people call it.
    generation_config: the author's sampling values, from
      generation_config.json. Never used unless asked for.
  """

  network: Network
  params: PyTree = dataclasses.field(compare=False, repr=False)
  tokenizer: Tokenizer | None = dataclasses.field(compare=False)
  eos_ids: tuple[int, ...]
  mesh: jax.sharding.Mesh
  name: str
  generation_config: Mapping[str, Any] = dataclasses.field(
    default_factory=dict, compare=False
  )

  @property
  def vocab_size(self) -> int:
    """How many tokens there are; the network has more where a mesh cuts it."""
    if self.tokenizer is None:
      return self.network.vocab_size
    return self.tokenizer.size

  def skeleton(self) -> LanguageModel:
    """The network alone: static, cheap to keep, equal for equal programs."""
    return LanguageModel(self.network, None, None, (), self.mesh, name="")

  def tokenizer_mismatch(self, other: LanguageModel) -> str | None:
    """Why token ids of one model mean something else to the other, or None."""
    mine, theirs = self.tokenizer, other.tokenizer
    if mine is not None and theirs is not None:
      return mine.same_as(theirs)
    if self.network.vocab_size != other.network.vocab_size:
      return f"{self.network.vocab_size} and {other.network.vocab_size} tokens"
    return None

  def logits(
    self, tokens: Sequence[int], count: int | None = None
  ) -> np.ndarray:
    """The raw logits after each of the last tokens, float32 `[T, V]`.

    Args:
      tokens: a text from its beginning.
      count: T, how many of its last tokens are meant; all of them if None.

    Raises:
      ValueError: no tokens, or tokens that are not in the vocabulary.
    """
    vocab = self.vocab_size
    if not len(tokens) or not all(0 <= token < vocab for token in tokens):
      raise ValueError(f"expected one or more tokens in [0, {vocab})")
    # Causal: what is padded behind the last token does not reach it.
    size = -(-len(tokens) // _BUCKET) * _BUCKET
    tokens_BT = np.zeros((1, size), np.int32)
    tokens_BT[0, : len(tokens)] = tokens
    # The width is compiled for, so all of a text is all of its bucket.
    width, begin = (size, 0) if count is None else (count, len(tokens) - count)
    logits_TV = _logits(
      self.network, width, self.params, tokens_BT, np.int32(begin)
    )
    return to_host(logits_TV[: len(tokens), :vocab])


@functools.partial(jax.jit, static_argnames=("network", "width"))
def _logits(
  network: Network, width: int, params: PyTree, tokens_BT: Array, begin: Array
) -> Array:
  cache = network.init_cache(1, tokens_BT.shape[1])
  start_B = jnp.zeros(1, jnp.int32)
  hidden_BTD, _, _ = network.forward(params, tokens_BT, start_B, cache)
  wanted_BTD = jax.lax.dynamic_slice_in_dim(hidden_BTD, begin, width, axis=1)
  return network.head(params, wanted_BTD)[0]
