"""One step, and what is carried to the next."""

import jax
import numpy as np
import optax
import pytest

from specdec_jax.training import state
from tests.decode import toys

MODEL = toys.tiny(seed=1)
OBJECTIVE = state.Objective(MODEL.network, None, "cross_entropy")
T = 12
ROW_BT = np.random.default_rng(0).integers(
  0, toys.TINY_VOCAB, (4, T + 1), np.int32
)


def _begin(averaged=False, decay=0.0, accumulate=1, rate=1.0):
  """A state before the first step, and the step."""
  weights = toys.tiny(seed=4).params  # the step takes them
  transformation = optax.sgd(rate)
  begin = state.init_state(weights, transformation, averaged, MODEL.mesh)
  return begin, state.make_step(
    OBJECTIVE, transformation, decay, accumulate, begin
  )


def test_positions_weigh_the_same_in_parts_as_in_one_piece():
  weight_BT = np.ones((4, T), np.float32)
  weight_BT[0, 3:] = 0
  weight_BT[1, :7] = 0
  weight_BT[3] = 0  # in four parts, the last of them has nothing that counts
  measured = []
  for accumulate in (1, 2, 4):
    begin, step = _begin(accumulate=accumulate)
    _, metrics = step(begin, None, ROW_BT, weight_BT)
    measured.append([float(metrics["loss"]), float(metrics["gradient_norm"])])
  np.testing.assert_allclose(measured[1:], measured[:1] * 2, rtol=1e-5)


@pytest.mark.parametrize("decay", [0.05, 0.999])
def test_the_average(decay):
  """It follows quickly at first, and forgets the random weights."""
  now, step = _begin(averaged=True, decay=decay, rate=0.1)
  weight_BT = np.ones((4, T), np.float32)
  expected = np.asarray(now.params["embed.weight"])
  for made in range(4):
    now, _ = step(now, None, ROW_BT, weight_BT)
    kept = min(decay, (1 + made) / (10 + made))
    new = np.asarray(now.params["embed.weight"])
    expected = kept * expected + (1 - kept) * new
    np.testing.assert_allclose(
      now.average["embed.weight"], expected, rtol=1e-5, atol=1e-7
    )
    assert (np.asarray(now.average["embed.weight"]) != new).any()


def test_a_state_that_is_used_up_has_shapes_and_places_left():
  begin, _ = _begin(averaged=True)
  leaves = jax.tree.leaves(begin)
  told = [(leaf.shape, leaf.dtype, leaf.sharding) for leaf in leaves]
  like = state.used_up(begin)
  assert all(leaf.is_deleted() for leaf in leaves)
  assert told == [
    (leaf.shape, leaf.dtype, leaf.sharding) for leaf in jax.tree.leaves(like)
  ]
