"""The law of a token against a plain reference in float64, and drawing."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax import sampling
from specdec_jax.sampling import LOG_ZERO, Law, SamplingParams
from specdec_jax.testing import goodness_of_fit

SMALLEST, LARGEST = 0.0, float(np.nextafter(np.float32(1), np.float32(0)))


def _law(params: list[SamplingParams]) -> Law:
  return Law.of(params, [1] * len(params), vocab_size=None)


_log_probs = jax.jit(sampling.log_probs)


def _probs(logits_BTV, params: list[SamplingParams]) -> np.ndarray:
  logits_BTV = jnp.asarray(logits_BTV, jnp.float32)
  log = np.asarray(_log_probs(logits_BTV, _law(params)), float)
  assert np.isfinite(log).all()
  probs = np.exp(log)
  assert (log[probs == 0] <= LOG_ZERO).all()
  np.testing.assert_allclose(probs.sum(axis=-1), 1, rtol=1e-5)
  return probs


def reference(logits_V, params: SamplingParams) -> np.ndarray:
  """The definition, by sorting, one row at a time."""
  logits_V = np.asarray(logits_V, np.float32).astype(float)
  if params.temperature == 0:
    return (np.arange(len(logits_V)) == np.argmax(logits_V)).astype(float)
  scaled_V = logits_V / np.float32(params.temperature)
  probs_V = np.exp(scaled_V - scaled_V.max())
  if params.top_k:
    last = np.sort(probs_V)[::-1][: params.top_k][-1]
    probs_V = np.where(probs_V >= last, probs_V, 0)
  probs_V /= probs_V.sum()
  if params.top_p < 1:
    # In float64, of the value that float32 made of it.
    descending = np.sort(probs_V)[::-1]
    before = np.cumsum(descending) - descending
    last = descending[before < float(np.float32(params.top_p))][-1]
    probs_V = np.where(probs_V >= last, probs_V, 0)
  least = float(np.float32(params.min_p)) * probs_V.max()
  probs_V = np.where(probs_V >= least, probs_V, 0)
  return probs_V / probs_V.sum()


GRID = [
  SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
  for temperature, top_k, top_p, min_p in itertools.product(
    (0.0, 0.3, 1.0, 1.7), (0, 1, 3, 100), (1e-6, 0.5, 0.93, 1.0), (0, 0.2, 1)
  )
]


@pytest.mark.parametrize("size", [1, 2, 7, 600])
def test_every_combination_of_parameters(size):
  # A row of the batch for each combination, so rows of all kinds are mixed.
  rng = np.random.default_rng(size)
  logits_BTV = 3 * rng.standard_normal((len(GRID), 3, size))
  found = _probs(logits_BTV, GRID)
  for row, params in enumerate(GRID):
    for position in range(3):
      expected = reference(logits_BTV[row, position], params)
      np.testing.assert_allclose(
        found[row, position], expected, atol=2e-6, err_msg=str(params)
      )


def test_large_vocabulary():
  params = [
    SamplingParams(temperature=1.0, top_p=0.9),
    SamplingParams(temperature=0.7, top_k=50, top_p=0.99),
    SamplingParams(temperature=1.3, min_p=0.01),
    SamplingParams(),
  ]
  rng = np.random.default_rng(0)
  logits_BTV = 2 * rng.standard_normal((len(params), 1, 50_000))
  found = _probs(logits_BTV, params)
  for row, each in enumerate(params):
    expected = reference(logits_BTV[row, 0], each)
    # Sums of 50,000 float32 numbers may move the edge of top-p by a token.
    differ = (found[row, 0] > 0) != (expected > 0)
    assert differ.sum() <= 2
    np.testing.assert_allclose(found[row, 0], expected, atol=2e-5)


@pytest.mark.parametrize(
  "params, expected",
  [
    (SamplingParams(temperature=1.0, top_k=2), [1 / 3, 1 / 3, 1 / 3, 0]),
    (SamplingParams(temperature=1.0, top_p=0.5), [1 / 3, 1 / 3, 1 / 3, 0]),
    (SamplingParams(temperature=1.0, min_p=1.0), [1 / 3, 1 / 3, 1 / 3, 0]),
    (SamplingParams(temperature=0.0), [1, 0, 0, 0]),
  ],
)
def test_ties_stay_together_and_greedy_takes_the_first(params, expected):
  found = _probs([[[2.0, 2.0, 2.0, 0.0]]], [params])
  np.testing.assert_allclose(found[0, 0], expected, atol=1e-6)


def test_temperature_comes_before_top_p():
  # (0.6, 0.3, 0.1) at temperature 2 is (0.473, 0.334, 0.193): top-p of 0.8
  # keeps two tokens before the temperature and all but the last after it.
  logits = [[np.log([0.6, 0.3, 0.1])]]
  params = SamplingParams(temperature=2.0, top_p=0.85)
  np.testing.assert_array_equal(_probs(logits, [params]) > 0, [[[1, 1, 1]]])
  params = dataclasses.replace(params, temperature=1.0)
  np.testing.assert_array_equal(_probs(logits, [params]) > 0, [[[1, 1, 0]]])


def test_top_k_comes_before_top_p():
  # Of (0.4, 0.3, 0.2, 0.1), top-k 2 leaves (4/7, 3/7): 0.5 is then reached by
  # the first token alone; in the other order both would stay.
  logits = [[np.log([0.4, 0.3, 0.2, 0.1])]]
  params = SamplingParams(temperature=1.0, top_k=2, top_p=0.5)
  np.testing.assert_allclose(_probs(logits, [params])[0, 0], [1, 0, 0, 0])


@pytest.mark.parametrize("temperature", [0.0, 1e-5, 1e-3, 1.0, 1e6])
@pytest.mark.parametrize("masked", [LOG_ZERO, -np.inf, -1e38])
def test_masked_logits_are_no_tokens(temperature, masked):
  logits = [[[masked, 1.0, masked, 0.5]]]
  params = SamplingParams(temperature=temperature, top_p=0.9, min_p=0.01)
  found = _probs(logits, [params])[0, 0]
  np.testing.assert_array_equal(found[[0, 2]], 0)


def test_one_law_is_not_changed_by_the_rows_beside_it():
  rng = np.random.default_rng(3)
  logits_BTV = rng.standard_normal((len(GRID), 2, 600))
  together = _probs(logits_BTV, GRID)
  for row in range(0, len(GRID), 17):
    alone = _probs(logits_BTV[row : row + 1], GRID[row : row + 1])
    # Sums may round otherwise in another shape.
    np.testing.assert_allclose(alone[0], together[row], rtol=2e-6)


class TestDraw:
  draw = staticmethod(jax.jit(sampling.draw))

  def one(self, weights, first, second=0.5) -> int:
    uniform = jnp.array([[[first, second]]], jnp.float32)
    return int(self.draw(jnp.array([[weights]], jnp.float32), uniform)[0, 0])

  @pytest.mark.parametrize(
    "uniform, token",
    [
      (0.0, 1),
      (0.1999, 1),
      (0.2001, 2),
      (0.4999, 2),
      (0.5001, 4),
      (LARGEST, 4),
    ],
  )
  def test_inverts_the_cumulative_distribution(self, uniform, token):
    # In a single block the second uniform decides.
    weights = [0, 0.4, 0.6, 0, 1.0, 0]
    assert self.one(weights, 0.5, uniform) == token

  @pytest.mark.parametrize("first", [SMALLEST, 0.3, LARGEST])
  @pytest.mark.parametrize("second", [SMALLEST, 0.7, LARGEST])
  def test_weight_zero_is_never_drawn(self, first, second):
    rng = np.random.default_rng(0)
    weight = rng.exponential(size=(300, 2, 1200))
    # Whole blocks of 512 are empty in some rows, and most tokens in all.
    weight *= rng.random(weight.shape) < 0.01
    weight[:100, :, :512] = 0
    weight[100:200, :, 1024:] = 0
    weight[..., 700] += 1e-6
    uniform = np.broadcast_to(np.float32([first, second]), (300, 2, 2))
    token = self.draw(jnp.asarray(weight, jnp.float32), jnp.asarray(uniform))
    drawn = np.take_along_axis(weight, np.asarray(token)[..., None], axis=-1)
    assert (drawn > 0).all()

  def test_law_over_several_blocks(self):
    """Chi-square; false alarms: 1e-6."""
    rng = np.random.default_rng(1)
    weight = rng.exponential(size=1200) ** 3
    weight[rng.random(1200) < 0.2] = 0
    count = 20_000
    uniform = rng.random((1, count, 2)).astype(np.float32)
    weights = np.broadcast_to(weight, (1, count, 1200))
    token = self.draw(jnp.asarray(weights, jnp.float32), jnp.asarray(uniform))
    law = {(x,): w for x, w in enumerate(weight / weight.sum())}
    assert goodness_of_fit(np.asarray(token)[0, :, None].tolist(), law) > 1e-6

  def test_weights_need_no_norm(self):
    for scale in (1e-30, 1.0, 1e30):
      assert self.one([scale, 0, 3 * scale], 0.5, 0.2) == 0
      assert self.one([scale, 0, 3 * scale], 0.5, 0.3) == 2

  def test_improbable_tokens_keep_their_probability(self):
    # 1e-9 is far below the steps of 2**-23 of one uniform, but in its block
    # it is one in a million.
    weights = np.zeros(1024)
    weights[[0, 600, 601]] = 1.0, 1e-9, 1e-3
    assert self.one(weights, LARGEST, 5e-7) == 600
    assert self.one(weights, LARGEST, 2e-6) == 601


class TestSamplingParams:
  @pytest.mark.parametrize(
    "name, value",
    [
      ("temperature", -0.1),
      ("temperature", 1e-6),
      ("temperature", float("nan")),
      ("temperature", float("inf")),
      ("top_k", -1),
      ("top_k", 1.5),
      ("top_k", True),
      ("top_p", 0.0),
      ("top_p", 1.1),
      ("top_p", float("nan")),
      ("min_p", -0.1),
      ("min_p", 1.1),
      ("seed", -1),
      ("seed", 2**32),
      ("seed", 0.5),
      ("max_new_tokens", 0),
      ("max_new_tokens", 2.0),
    ],
  )
  def test_values_out_of_range(self, name, value):
    with pytest.raises(ValueError, match=rf"^{name}: expected .* got {value}"):
      SamplingParams(**{name: value})

  def test_ends_of_the_ranges(self):
    SamplingParams(temperature=0, top_k=0, top_p=1, min_p=0, seed=0)
    SamplingParams(top_p=1e-9, min_p=1, seed=2**32 - 1, max_new_tokens=1)
    SamplingParams(top_k=2**31 - 1, temperature=1e9)
