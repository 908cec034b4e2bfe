"""Pairs of laws that a rule must cope with, for the oracle."""

import functools

import numpy as np

from specdec_jax.testing import NextLaw, Tokens


def constant(*probabilities: float) -> NextLaw:
  """The same law after any text."""
  return lambda text: np.array(probabilities)


def random_law(seed: int, size: int, zeros: int = 0) -> NextLaw:
  """A law that depends on the whole text; `zeros` tokens never come."""

  @functools.cache
  def law(text: Tokens) -> np.ndarray:
    rng = np.random.default_rng((seed, len(text), *text))
    law_V = rng.dirichlet(np.ones(size))
    law_V[rng.permutation(size)[:zeros]] = 0
    return law_V / law_V.sum()

  return law


def mixture(a: NextLaw, b: NextLaw, share: float) -> NextLaw:
  """(1 - share) a + share b: a draft that is right in part."""
  return lambda text: (1 - share) * a(text) + share * b(text)


def one_hot(law: NextLaw) -> NextLaw:
  """The point mass on a law's most probable token."""
  return lambda text: np.eye(len(law(text)))[np.argmax(law(text))]


def shifted(law: NextLaw) -> NextLaw:
  """The same probabilities on other tokens."""
  return lambda text: np.roll(law(text), 1)


P, Q = constant(1 / 3, 2 / 3), constant(2 / 3, 1 / 3)  # the toy pair

# Of three tokens each, so that they share the oracle's compiled program.
_p, _q = random_law(1, 3), random_law(2, 3)
PAIRS = {
  "random": (_p, _q),
  "p with zeros": (random_law(3, 3, zeros=1), _q),
  "q with zeros": (_p, random_law(4, 3, zeros=1)),
  "both with zeros": (random_law(5, 3, zeros=1), random_law(6, 3, zeros=1)),
  "p one-hot": (one_hot(_p), _q),
  "q one-hot": (_p, one_hot(_q)),
  "both one-hot": (one_hot(_p), one_hot(_q)),
  "nothing in common": (one_hot(_p), shifted(one_hot(_p))),
  "equal": (_p, _p),
  "equal up to rounding": (_p, mixture(_p, _q, 1e-7)),
  "close": (_p, mixture(_p, _q, 0.1)),
  "rare tokens": (
    constant(1e-6, 1 - 1.1e-6, 1e-7),
    constant(0.5 - 1e-6, 1e-6, 0.5),
  ),
}
