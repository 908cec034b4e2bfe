"""From logits to a law, and from a law to a token.

The only place where penalties, biases, temperature, top-k, top-p and min-p
live. Plain decoding, every drafter and every acceptance rule take their law
from here: two readings of the same parameters would be two laws, and the
output would follow neither.
"""

from specdec_jax.sampling.controls import Controls, History
from specdec_jax.sampling.inverse_cdf import draw
from specdec_jax.sampling.law import Law, log_probs
from specdec_jax.sampling.params import SamplingParams, is_integer
from specdec_jax.types import LOG_ZERO

__all__ = [
  "LOG_ZERO",
  "Controls",
  "History",
  "Law",
  "SamplingParams",
  "draw",
  "is_integer",
  "log_probs",
]
