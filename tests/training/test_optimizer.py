"""The schedule, the mask and the clipping of the optimiser."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from specdec_jax.training.optimizer import OptimizerConfig

PARAMS = {
  "embed.weight": jnp.full((6, 4), 2.0),
  "layers.0.attention.query.bias": jnp.full((4,), 2.0),
  "layers.0.attention.query.weight": jnp.full((4, 4), 2.0),
  "layers.0.mlp_norm.scale": jnp.full((4,), 2.0),
}


def _rates(warmup_steps, steps):
  config = OptimizerConfig(learning_rate=0.5, warmup_steps=warmup_steps)
  schedule = config.schedule(steps)
  return np.array([schedule(step) for step in range(steps + 1)])


def test_the_first_step_learns_and_the_rate_rises_to_its_highest():
  rates = _rates(4, 20)
  np.testing.assert_allclose(rates[:5], 0.5 * np.arange(1, 6) / 5, rtol=1e-6)


@pytest.mark.parametrize("warmup_steps", [0, 4])
def test_the_rate_falls_by_a_cosine_to_a_tenth(warmup_steps):
  rates = _rates(warmup_steps, 20)[warmup_steps:]
  turn = np.cos(np.linspace(0, np.pi, len(rates)))
  np.testing.assert_allclose(rates, 0.05 + 0.225 * (1 + turn), rtol=1e-5)


def test_a_rate_that_only_rises_is_refused():
  with pytest.raises(ValueError, match=r"warmup_steps: .* 20 steps .* got 20"):
    _rates(20, 20)


@pytest.mark.parametrize(
  "name, decayed",
  [
    ("adamw", {"embed.weight", "layers.0.attention.query.weight"}),
    ("muon", {"layers.0.attention.query.weight"}),
  ],
)
def test_only_matrices_decay(name, decayed):
  """Where the gradient is 0, the decay is all that moves a weight."""
  config = OptimizerConfig(name, 0.1, warmup_steps=0, weight_decay=0.5)
  transformation = config.make(10)
  nothing = {path: jnp.zeros_like(leaf) for path, leaf in PARAMS.items()}
  change, _ = transformation.update(
    nothing, transformation.init(PARAMS), PARAMS
  )
  assert {path for path in PARAMS if (change[path] != 0).any()} == decayed
  for path in decayed:
    np.testing.assert_allclose(change[path], -0.1 * 0.5 * 2.0, rtol=1e-6)


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_long_gradients_are_cut(name):
  """A gradient ten times as long as the limit is worth one of the limit."""
  config = OptimizerConfig(name, warmup_steps=0, clip_norm=0.25)
  transformation = config.make(10)
  draw = np.random.default_rng(0)
  gradient = {p: draw.standard_normal(x.shape) for p, x in PARAMS.items()}
  length = optax.tree.norm(gradient)
  states = [
    transformation.update(
      {p: g * (wanted / length) for p, g in gradient.items()},
      transformation.init(PARAMS),
      PARAMS,
    )[1]
    for wanted in (0.25, 2.5)
  ]
  moments = [
    [leaf for _, leaf in optax.tree.get_all_with_path(one, "mu")]
    for one in states
  ]
  assert moments[0]
  norms = [float(optax.tree.norm(moment)) for moment in moments]
  assert norms[0] > 0
  np.testing.assert_allclose(norms[0], norms[1], rtol=1e-5)
