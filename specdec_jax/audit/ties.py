"""Where two texts part: by rounding, or by a fault."""

import dataclasses
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from specdec_jax.models.language_model import LanguageModel
from specdec_jax.noise import Noise


@dataclasses.dataclass(frozen=True)
class Tie:
  """What a model says, from scratch, of a place where two tokens stood.

  Attributes:
    gap: how far the lower of the two tokens lies below the best score there.
    top_gap: how far apart the two best scores are.
  """

  gap: float
  top_gap: float


def look(
  target: LanguageModel,
  context: Sequence[int],
  tokens: tuple[int, int],
  seed: int | None = None,
) -> Tie:
  """How near a tie two tokens were.

  Both must be within rounding of the best score. The two best may well be a
  tie without a fault's token being one of them.

  Args:
    target: the model.
    context: the tokens before the place.
    tokens: the two that were found there.
    seed: of a text drawn with shared Gumbel noise, at temperature 1: scores
      are then logits plus that noise. None for greedy text.
  """
  score_V = target.logits(context, count=1)[-1]
  if seed is not None:
    position = len(context)
    noise = Noise(
      jnp.asarray([seed % 2**32], jnp.uint32),
      jnp.asarray([position], jnp.int32),
      coupled=True,
    )
    size = target.network.vocab_size
    noise_V = np.asarray(noise.gumbel(jnp.asarray([[position]]), size))[0, 0]
    score_V = score_V + noise_V[: len(score_V)]
  second, first = np.partition(score_V, -2)[-2:]
  lower = min(score_V[token] for token in tokens)
  return Tie(float(first - lower), float(first - second))
