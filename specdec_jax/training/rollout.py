"""Data generated on the way: a teacher or the student writes what is learnt.

A draft is asked about texts that its target writes, and those are not the texts
it was trained on. DistillSpec (Zhou et al., arXiv 2310.08461) finds that it
learns more from generated ones, by whom:

* The teacher: its own law, as at decoding. With a distillation loss the student
  sees whole laws; with cross-entropy, tokens alone, which is sequence-level
  distillation (Kim and Rush, arXiv 1606.07947).
* The student: the contexts that its own mistakes lead to (on-policy), judged by
  the teacher. Cheap, since the student is small.

A mixture with rows of the texts keeps what the writer hardly ever says.
"""

import dataclasses

import numpy as np

from specdec_jax.drafters import DraftModel
from specdec_jax.generate import SpeculativeDecoder
from specdec_jax.models.language_model import LanguageModel
from specdec_jax.models.transformer import Params, TransformerNetwork
from specdec_jax.sampling import SamplingParams
from specdec_jax.training import losses, ranges
from specdec_jax.training.data import TextBatches, prompt_length
from specdec_jax.training.state import as_model

TEACHER, STUDENT = "teacher", "student"
WRITERS = (TEACHER, STUDENT)


@dataclasses.dataclass(frozen=True)
class RolloutConfig:
  """What is generated.

  Attributes:
    writer: "teacher" or "student".
    share: of the rows of a step, in (0, 1]; the others are texts. ½ is
      DistillSpec's mixed data.
    temperature: of the writer. 1 draws from the law that the losses compare; 0
      writes what a user of greedy decoding will read.

  Raises:
    ValueError: a value lies outside its range.
  """

  writer: str
  share: float = 1.0
  temperature: float = 1.0

  def __post_init__(self) -> None:
    if self.writer not in WRITERS:
      raise ValueError(
        f"writer: expected one of {', '.join(WRITERS)}, got {self.writer!r}"
      )
    ranges.numbers(
      "a share in (0, 1]", lambda value: 0 < value <= 1, share=self.share
    )
    SamplingParams(temperature=self.temperature)

  def rows(self, batch_size: int) -> int:
    """How many rows of a step are generated."""
    return round(self.share * batch_size)

  def check(
    self, loss: str, has_teacher: bool, batch_size: int, length: int
  ) -> None:
    """Checks that a training can use what is generated.

    Args:
      loss: its name.
      has_teacher: whether there is a teacher.
      batch_size: rows of a step.
      length: tokens of a row, T.

    Raises:
      ValueError: it cannot.
    """
    if not has_teacher:
      raise ValueError(
        f"generate: expected a teacher, to write the texts or to judge those "
        f"of the student, got {self.writer} without one"
      )
    if self.writer == STUDENT and loss == losses.CROSS_ENTROPY:
      raise ValueError(
        "generate: a student has nothing to learn from its own texts by "
        f"{loss}; choose a loss that asks the teacher, or let the teacher write"
      )
    if not self.rows(batch_size):
      raise ValueError(
        f"share of generated rows: {self.share} of {batch_size} is none; "
        f"expected at least {1 / batch_size:.3g}"
      )
    if length < 2:
      raise ValueError(
        "sequence_length: expected at least 2 to generate, a token of prompt "
        f"and a new one, got {length}"
      )


@dataclasses.dataclass(frozen=True)
class Rollouts:
  """Batches whose first rows are texts' beginnings that a model goes on with.

  A quarter of a row is the prompt. Only what was generated counts: the rest is
  no data of the writer. A row ends with the writer's end of sequence, which is
  the last that counts; what fills it up does not.

  A batch is a function of seed, step and the weights of that step, so that a
  training goes on after a kill as if there had been none. The teacher's texts
  depend on seed and step alone: it writes with the student as its draft, by the
  rule whose tokens are those of plain decoding, whatever the draft. Trainings
  with different losses then learn from the same texts.

  Attributes:
    config: what is generated.
    texts: where prompts and the rows that are not generated come from; their
      seed is that of the drawing as well.
    student: the model in training; its weights are those of the step.
    network: the student's, of the type it computes in.
    teacher: the model to be imitated.
    num_draft_tokens: K, when the teacher writes.
  """

  config: RolloutConfig
  texts: TextBatches
  student: LanguageModel
  network: TransformerNetwork
  teacher: LanguageModel
  num_draft_tokens: int

  def __call__(
    self, step: int, params: Params
  ) -> tuple[np.ndarray, np.ndarray]:
    """The batch of a step, see `data.Batches`."""
    row_BT, weight_BT = self.texts(step, params)
    count = self.config.rows(len(row_BT))
    length = row_BT.shape[1] - 1
    begin = prompt_length(length)
    # The last of the T + 1 tokens is left out: T are the most that a model
    # whose context is T can be asked for.
    result = self._decoder(params).generate(
      row_BT[:count, :begin].tolist(),
      max_new_tokens=length - begin,
      sampling=[
        SamplingParams(
          temperature=self.config.temperature,
          seed=_seed(self.texts.seed, step, row),
        )
        for row in range(count)
      ],
    )
    row_BT[:count, begin:] = 0
    weight_BT[:count] = 0
    for row, tokens in enumerate(result.tokens):
      end = begin + len(tokens)
      row_BT[row, begin:end] = tokens
      # Position i is where token i + 1 is predicted.
      weight_BT[row, begin - 1 : end - 1] = 1
    return row_BT, weight_BT

  def _decoder(self, params: Params) -> SpeculativeDecoder:
    # Without tokenizers nobody makes text of the tokens, or compares whole
    # vocabularies again in each step.
    student = dataclasses.replace(
      as_model(self.student, self.network, params), tokenizer=None
    )
    if self.config.writer == STUDENT:
      return SpeculativeDecoder(student, rule="gumbel")
    teacher = dataclasses.replace(self.teacher, tokenizer=None)
    drafter = DraftModel(student, self.num_draft_tokens)
    return SpeculativeDecoder(teacher, drafter, rule="gumbel")


def _seed(seed: int, step: int, row: int) -> int:
  """A row's seed, 32 bits."""
  return int(np.random.SeedSequence((seed, step, row)).generate_state(1)[0])
