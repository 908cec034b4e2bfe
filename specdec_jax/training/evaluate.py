"""How good a student is, on texts that it was not trained on."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from specdec_jax import sharding
from specdec_jax.drafters import DraftModel
from specdec_jax.generate import SpeculativeDecoder
from specdec_jax.models.language_model import LanguageModel
from specdec_jax.models.transformer import Params
from specdec_jax.training import losses, ranges
from specdec_jax.training.data import PackedTexts, prompt_length
from specdec_jax.training.state import Objective
from specdec_jax.types import Array, PyTree


@dataclasses.dataclass(frozen=True)
class Scores:
  """What was measured on held-out texts.

  Attributes:
    loss: mean cross-entropy, in nats a token. Tokens that a student of a
      limited vocabulary does not know count 0: compare it with none other.
    bits_per_byte: the same in bits for each byte of UTF-8.
    acceptance: with a teacher, the mean of Σ min(p, q) over the positions of
      the texts: how probable it is that a draft drawn there is kept, at
      temperature 1.
    agreement: with a teacher, how often both find the same token best.
    tokens_per_target_pass: with a teacher, τ: greedy, by the decoder.
  """

  loss: float
  bits_per_byte: float
  acceptance: float | None = None
  agreement: float | None = None
  tokens_per_target_pass: float | None = None

  @property
  def score(self) -> float:
    """The larger, the better: acceptance, or without a teacher -loss."""
    return -self.loss if self.acceptance is None else self.acceptance


@dataclasses.dataclass(frozen=True)
class Examination:
  """What a student is examined with.

  Attributes:
    texts: the held-out texts.
    rows: how many of their rows are read.
    batch_size: how many at a time.
    prompts: of how many rows the beginning is continued by the decoder.
    num_draft_tokens: K in it.

  Raises:
    ValueError: a value lies outside its range.
  """

  texts: PackedTexts
  rows: int = 64
  batch_size: int = 8
  prompts: int = 8
  num_draft_tokens: int = 4

  def __post_init__(self) -> None:
    ranges.integers(
      1,
      held_out_rows=self.rows,
      batch_size=self.batch_size,
      prompts=self.prompts,
      num_draft_tokens=self.num_draft_tokens,
    )

  def __call__(
    self,
    objective: Objective,
    params: Params,
    student: LanguageModel,
    teacher: LanguageModel | None,
  ) -> Scores:
    """Examines weights.

    Args:
      objective: what the student is trained for.
      params: its weights.
      student: the same as a model.
      teacher: the target it shall draft for.
    """
    row_NT = _spread(self.texts.row_NT, self.rows)
    weights = None if teacher is None else teacher.params
    sums = np.zeros(3)
    for begin in range(0, len(row_NT), self.batch_size):
      part_BT = row_NT[begin : begin + self.batch_size]
      short = self.batch_size - len(part_BT)
      part_BT = np.pad(part_BT, ((0, short), (0, 0)))
      measured_3BT = _measure(
        objective, params, weights, sharding.put_rows(part_BT, student.mesh)
      )
      sums += np.asarray(measured_3BT, float)[:, : self.batch_size - short].sum(
        axis=(1, 2)
      )
    positions = len(row_NT) * (row_NT.shape[1] - 1)
    loss, acceptance, agreement = (sums / positions).tolist()
    bits = loss / math.log(2) / self.texts.bytes_per_token
    if teacher is None:
      return Scores(loss, bits)
    tau = self._decode(student, teacher)
    return Scores(loss, bits, acceptance, agreement, tau)

  def _decode(self, student: LanguageModel, teacher: LanguageModel) -> float:
    """τ of the real decoder."""
    row_NT = _spread(self.texts.row_NT, self.prompts)
    length = prompt_length(row_NT.shape[1] - 1)
    prompts = row_NT[:, :length].tolist()
    drafter = DraftModel(student, num_draft_tokens=self.num_draft_tokens)
    result = SpeculativeDecoder(teacher, drafter).generate(
      prompts, max_new_tokens=length
    )
    return float(result.stats.tokens_per_target_pass)


def _spread(row_NT: np.ndarray, count: int) -> np.ndarray:
  """Some rows from all over the texts."""
  picked = np.linspace(0, len(row_NT) - 1, min(count, len(row_NT)))
  return row_NT[picked.astype(int)]


@functools.partial(jax.jit, static_argnums=0)
def _measure(
  objective: Objective, params: Params, teacher: PyTree, row_BT: Array
) -> Array:
  """Cross-entropy, acceptance and agreement of each position."""
  log_q_BTV, log_p_BTV = objective.laws(params, teacher, row_BT[:, :-1])
  loss_BT = losses.cross_entropy(row_BT[:, 1:], log_q_BTV)
  if log_p_BTV is None:
    nothing_BT = jnp.zeros_like(loss_BT)
    return jnp.stack([loss_BT, nothing_BT, nothing_BT])
  same_BT = log_p_BTV.argmax(axis=-1) == log_q_BTV.argmax(axis=-1)
  kept_BT = losses.acceptance(log_p_BTV, log_q_BTV)
  return jnp.stack([loss_BT, kept_BT, same_BT.astype(jnp.float32)])
