"""Lossless speculative decoding for JAX."""

from specdec_jax.acceptance import (
  BlockRule,
  GumbelRule,
  Lenient,
  Threshold,
  TokenRule,
  Typical,
)
from specdec_jax.conversation import Conversation
from specdec_jax.drafters import DraftModel, NoDraft, PromptLookup
from specdec_jax.generate import SpeculativeDecoder
from specdec_jax.generation import Generation
from specdec_jax.loading import load
from specdec_jax.models.language_model import LanguageModel
from specdec_jax.results import Chunk, Completion, GenerationResult
from specdec_jax.sampling import SamplingParams
from specdec_jax.stats import Stats
from specdec_jax.trace import Block

__version__ = "0.1.0"

__all__ = [
  "Block",
  "BlockRule",
  "Chunk",
  "Completion",
  "Conversation",
  "DraftModel",
  "Generation",
  "GenerationResult",
  "GumbelRule",
  "LanguageModel",
  "Lenient",
  "NoDraft",
  "PromptLookup",
  "SamplingParams",
  "SpeculativeDecoder",
  "Stats",
  "Threshold",
  "TokenRule",
  "Typical",
  "load",
]
