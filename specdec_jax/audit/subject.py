"""What is audited, and how its parts are run."""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from specdec_jax.buckets import batch_within
from specdec_jax.drafters import DraftModel
from specdec_jax.generate import SpeculativeDecoder
from specdec_jax.models.language_model import LanguageModel
from specdec_jax.results import Completion
from specdec_jax.sampling import SamplingParams
from specdec_jax.types import AcceptanceRule, Drafter

# By how much two right computations of one log-probability may differ: passes
# of other widths add in another order. Seen on CPUs: 1.4e-5 with the embedded
# pair in float32; in bfloat16 0.03 with it, and 0.07 with 28 layers of
# Qwen2.5-Coder. Faults of caches, positions and laws come to whole units.
_ROUNDING = {"float32": 1e-3, "bfloat16": 0.5}

_MOST_BYTES = 2**28  # of one array of laws, [B, K + 1, V]
_MOST_ROWS = 1024


@dataclasses.dataclass(frozen=True)
class Subject:
  """A pair, and what it is tried on.

  Attributes:
    target: the model whose law the text must have.
    drafter: bound to it.
    rule: of acceptance.
    prompts: token ids.
    max_new_tokens: of each text.
    num_samples: texts of the sampled law, in sum over prompts.
    seed: the first of the texts' seeds.
    level: how often a single test may fail a right pair.
  """

  target: LanguageModel
  drafter: Drafter
  rule: AcceptanceRule
  prompts: tuple[tuple[int, ...], ...]
  max_new_tokens: int
  num_samples: int
  seed: int
  level: float

  @property
  def width(self) -> int:
    """K, the most tokens drafted at a time."""
    return self.drafter.num_draft_tokens

  @property
  def draft(self) -> LanguageModel | None:
    """The model that drafts, if one does."""
    found = self.drafter
    return found.model if isinstance(found, DraftModel) else None

  @property
  def dtype(self) -> str:
    """The narrowest type that numbers are rounded to on their way."""
    models = [self.target, *([self.draft] if self.draft else [])]
    leaves = jax.tree.leaves([model.params for model in models])
    # Off the CPU, float32 is multiplied in fewer bits unless told otherwise.
    exact = jax.config.jax_default_matmul_precision in ("float32", "highest")
    on_cpu = self.target.mesh.devices.flat[0].platform == "cpu"
    narrow = any(leaf.dtype == jnp.bfloat16 for leaf in leaves)
    return "bfloat16" if narrow or not (on_cpu or exact) else "float32"

  @property
  def rounding(self) -> float:
    """By how much two right computations of a log-probability may differ."""
    return _ROUNDING[self.dtype]

  @property
  def rows(self) -> int:
    """How many texts run side by side at most."""
    law_bytes = 4 * (self.width + 1) * self.target.network.vocab_size
    return batch_within(min(_MOST_ROWS, max(_MOST_BYTES // law_bytes, 1)), 1)

  def run(
    self,
    drafter: Drafter,
    rule: AcceptanceRule,
    prompts: Sequence[Sequence[int]],
    sampling: SamplingParams | Sequence[SamplingParams],
    *,
    max_new_tokens: int | None = None,
    num_samples: int = 1,
    trace: bool = False,
  ) -> list[Completion]:
    """Generates with parts of the pair.

    Raises:
      ValueError: the logits are not finite; there is no law to follow.
    """
    result = SpeculativeDecoder(self.target, drafter, rule).generate(
      prompts,
      max_new_tokens=max_new_tokens or self.max_new_tokens,
      sampling=sampling,
      num_samples=num_samples,
      batch_size=self.rows,
      trace=trace,
    )
    if "nonfinite" in result.finish_reasons:
      raise ValueError(
        f"{self.target.name}: its logits are not finite, so there is no law "
        "that a text could follow; look at its weights"
      )
    return result.completions
