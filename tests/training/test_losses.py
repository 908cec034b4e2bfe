"""Losses and their gradients against NumPy in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax.training import losses
from specdec_jax.types import LOG_ZERO

_LEAST = np.exp(-80.0)  # reverse KL counts no p below it


def _sum(weight, ratio):
  """Σ weight log ratio over the last axis, with 0 log 0 = 0."""
  seen = weight > 0
  log = np.log(np.where(seen, ratio, 1.0), where=seen, out=np.zeros_like(ratio))
  return np.sum(weight * log, axis=-1)


def _forward_kl(p, q):
  p = np.where(q > 0, p, 0)
  p = p / p.sum(axis=-1, keepdims=True)
  return _sum(p, p / np.where(q > 0, q, 1))


def _reverse_kl(p, q):
  return _sum(q, q / np.maximum(p, _LEAST))


def _jensen_shannon(p, q):
  m = (p + q) / 2
  m = np.where(m > 0, m, 1)
  return (_sum(p, p / m) + _sum(q, q / m)) / 2


REFERENCES = {
  "forward_kl": _forward_kl,
  "reverse_kl": _reverse_kl,
  "jensen_shannon": _jensen_shannon,
  "total_variation": lambda p, q: np.abs(p - q).sum(axis=-1) / 2,
  "negative_log_acceptance": lambda p, q: -np.log(np.minimum(p, q).sum(-1)),
}
each_loss = pytest.mark.parametrize("name", REFERENCES)


def _softmax(logits, known):
  weight = np.where(known, np.exp(logits - logits.max()), 0)
  return weight / weight.sum(axis=-1, keepdims=True)


def _log_law(logits, known):
  return jax.nn.log_softmax(jnp.where(known, logits, LOG_ZERO), axis=-1)


def _laws(case):
  """Logits of 2 x 3 laws over 7 tokens, and which tokens they know."""
  rng = np.random.default_rng(0)
  p, q = rng.normal(size=(2, 2, 3, 7)) * 2
  knows_p, knows_q = np.ones((2, 7), bool)
  if case in ("p", "both"):
    knows_p[[0, 4]] = False
  if case in ("q", "both"):
    knows_q[[0, 6]] = False
  if case == "one-hot p":
    knows_p = np.arange(7) == 3
  if case == "one-hot q":
    knows_q = np.arange(7) == 3
  return p, knows_p, q, knows_q


CASES = ("all", "p", "q", "both", "one-hot p", "one-hot q")


def test_every_loss_has_a_reference():
  assert losses.DISTILLATION.keys() == REFERENCES.keys()


@each_loss
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients(name, case):
  p, knows_p, q, knows_q = _laws(case)
  law_p, reference = _softmax(p, knows_p), REFERENCES[name]

  def loss(logits):
    log_q = _log_law(logits, knows_q)
    return losses.DISTILLATION[name](_log_law(p, knows_p), log_q)

  found = loss(q.astype(np.float32))
  expected = reference(law_p, _softmax(q, knows_q))
  np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)
  gradient = jax.grad(lambda logits: loss(logits).sum())(q.astype(np.float32))
  step = 1e-5 * np.eye(7)[:, None, None]
  ahead, behind = (
    reference(law_p, _softmax(q + sign * step, knows_q)) for sign in (1, -1)
  )
  expected = np.moveaxis((ahead - behind) / 2e-5, 0, -1)
  np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-5)


@each_loss
@pytest.mark.parametrize("case", ("all", "both"))
def test_equal_laws_cost_nothing_and_pull_nowhere(name, case):
  p, known, _, _ = _laws(case)
  log_p = _log_law(p.astype(np.float32), known)

  def loss(logits):
    return losses.DISTILLATION[name](log_p, _log_law(logits, known)).sum()

  value, gradient = jax.value_and_grad(loss)(p.astype(np.float32))
  assert abs(value) < 1e-5
  np.testing.assert_allclose(gradient, 0, atol=1e-6)


@each_loss
@pytest.mark.parametrize("kept", ([0], [0, 1], [3]))
@pytest.mark.parametrize("known", ([0], [2, 3], [0, 1, 2, 3]))
def test_numbers_stay_numbers(name, kept, known):
  """Also where the laws have no token in common."""
  log_p = _log_law(np.zeros(4), np.isin(np.arange(4), kept))

  def loss(logits):
    log_q = _log_law(logits, np.isin(np.arange(4), known))
    return losses.DISTILLATION[name](log_p, log_q)

  value, gradient = jax.value_and_grad(loss)(np.zeros(4, np.float32))
  assert np.isfinite(value) and value >= -1e-6
  assert np.isfinite(gradient).all()
  # And none that throw a training off, save where none is accepted in truth.
  assert np.abs(gradient).max() <= 80
  assert value <= 80 or name == "negative_log_acceptance"


def test_forward_kl_of_a_limited_student_asks_for_the_tokens_it_knows():
  p, knows_p, q, knows_q = _laws("q")
  law_p = np.where(knows_q, _softmax(p, knows_p), 0)
  law_p /= law_p.sum(axis=-1, keepdims=True)
  log_q = _log_law(q, knows_q)
  found = losses.forward_kl(_log_law(p, knows_p), log_q)
  with np.errstate(divide="ignore"):
    alike = losses.forward_kl(np.maximum(np.log(law_p), LOG_ZERO), log_q)
  np.testing.assert_allclose(found, alike, rtol=1e-5)
  # The best such student has that law, and no loss.
  best = losses.forward_kl(_log_law(p, knows_p), _log_law(p, knows_q))
  np.testing.assert_allclose(best, 0, atol=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_what_is_not_accepted_is_rejected(case):
  p, knows_p, q, knows_q = _laws(case)
  laws = _log_law(p, knows_p), _log_law(q, knows_q)
  accepted = losses.acceptance(*laws)
  total = accepted + losses.total_variation(*laws)
  np.testing.assert_allclose(total, 1, atol=1e-6)
  found = losses.negative_log_acceptance(*laws)
  np.testing.assert_allclose(found, -np.log(accepted), rtol=1e-4, atol=1e-6)


def test_cross_entropy():
  _, _, q, knows_q = _laws("q")
  label = np.array([[1, 2, 0], [6, 5, 3]])  # 0 and 6 are not known

  def loss(logits):
    return losses.cross_entropy(label, _log_law(logits, knows_q))

  law_q = _softmax(q, knows_q)
  picked = np.take_along_axis(law_q, label[..., None], axis=-1)[..., 0]
  seen = knows_q[label]
  expected = np.where(seen, -np.log(np.where(seen, picked, 1)), 0)
  np.testing.assert_allclose(loss(q.astype(np.float32)), expected, rtol=1e-5)
  gradient = jax.grad(lambda logits: loss(logits).sum())(q.astype(np.float32))
  expected = (law_q - np.eye(7)[label]) * seen[..., None]
  np.testing.assert_allclose(gradient, expected, atol=1e-6)
