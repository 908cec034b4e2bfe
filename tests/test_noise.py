"""Random numbers have names: distinct where they must be, equal elsewhere."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax.noise import Noise, Purpose


def _noise(seeds, lengths, coupled=False) -> Noise:
  return Noise(jnp.array(seeds, jnp.uint32), jnp.array(lengths), coupled)


@jax.jit
def _key_data(seed_B, length_B) -> jax.Array:
  """Keys of a block of 5 positions, `[purpose, B, T, 2]`."""
  noise = Noise(seed_B, length_B, False)
  position_BT = noise.positions(5)
  return jnp.stack(
    [jax.random.key_data(noise.keys(p, position_BT)) for p in Purpose]
  )


def test_keys_of_many_blocks_are_distinct():
  seeds = jnp.array([0, 1, 2, 7, 2**32 - 1], jnp.uint32)
  found = []
  # Blocks move on by one token, so that all but one position come again.
  for block in range(50):
    keys = _key_data(seeds, jnp.arange(5) + block + 1)
    found.append(np.asarray(keys).reshape(-1, 2))
  found = np.concatenate(found)
  assert len(np.unique(found, axis=0)) == len(found) == 50 * 5 * 5 * 4


def test_coupled_noise_is_named_by_seed_and_position_alone():
  position_BT = jnp.array([[9, 10, 11]])

  def gumbel(seed, length, coupled):
    return _noise([seed], [length], coupled).gumbel(position_BT, 4)

  same = gumbel(3, 5, True)
  np.testing.assert_array_equal(same, gumbel(3, 8, True))
  for other in (gumbel(4, 5, True), gumbel(3, 5, False)):
    assert not np.intersect1d(same, other).size
  # Each position has its own.
  assert len(np.unique(same)) == same.size


def test_uncoupled_noise_is_fresh_in_every_block():
  position_BT = jnp.array([[9, 10, 11]])
  blocks = [
    _noise([3], [length]).uniform(Purpose.ACCEPT, position_BT)
    for length in (7, 8, 9)
  ]
  assert len(np.unique(np.stack(blocks))) == 3 * 3 * 2


def test_a_row_does_not_depend_on_its_neighbours():
  seeds, lengths = [5, 6, 7, 8], [3, 90, 4, 1]
  together = _noise(seeds, lengths)
  together = together.uniform(Purpose.DRAFT, together.positions(4))
  for row, name in enumerate(zip(seeds, lengths, strict=True)):
    alone = _noise([name[0]], [name[1]])
    alone = alone.uniform(Purpose.DRAFT, alone.positions(4))
    np.testing.assert_array_equal(alone[0], together[row])


def test_the_first_numbers_of_a_position_do_not_depend_on_how_many_are_drawn():
  noise = _noise([1], [4])
  few = noise.uniform(Purpose.ACCEPT, noise.positions(2))
  many = noise.uniform(Purpose.ACCEPT, noise.positions(6))
  np.testing.assert_array_equal(few, many[:, :2])


@pytest.mark.parametrize("default", ["rbg", "unsafe_rbg"])
def test_the_process_default_generator_does_not_matter(default):
  noise = _noise([1, 2], [4, 5])
  before = noise.uniform(Purpose.NEXT, noise.positions(3))
  with jax.default_prng_impl(default):
    after = noise.uniform(Purpose.NEXT, noise.positions(3))
  np.testing.assert_array_equal(before, after)


def test_uniforms_are_uniform():
  """Kolmogorov-Smirnov; false alarms: 1e-6."""
  from scipy import stats

  noise = _noise(range(5000), [1] * 5000)
  values = np.asarray(noise.uniform(Purpose.ACCEPT, noise.positions(4)))
  assert values.min() >= 0 and values.max() < 1
  for axis in range(2):
    found = values[..., axis].ravel()
    assert stats.kstest(found, stats.uniform.cdf).pvalue > 1e-6
  pairs = np.corrcoef(values.reshape(-1, 2).T)[0, 1]
  assert abs(pairs) < 5 / np.sqrt(values.size / 2)


def test_names_are_stable():
  # A seed means the same text in every version; a change must be meant.
  noise = _noise([42], [7])
  found = noise.uniform(Purpose.DRAFT, noise.positions(1))
  coupled = _noise([42], [7], True).gumbel(noise.positions(1), 2)
  np.testing.assert_allclose(found, [[[0.1788056, 0.1827486]]], rtol=1e-6)
  np.testing.assert_allclose(coupled, [[[0.55049515, -0.933346]]], rtol=1e-6)


def test_rare_tokens_can_win_a_race():
  # 2**25 draws: 1523 above 10 are expected, and 3.8 above 16, where noise made
  # from one float32 ends. Within five standard deviations: a false alarm in
  # 1.7 million seeds, and the seed is fixed.
  noise = _noise([1], [3], True)

  @jax.jit
  def above(position):
    found = noise.gumbel(position[None, None], 2**20)
    return (found > 10).sum(), (found > 16).sum()

  counts = np.array([above(jnp.int32(i)) for i in range(32)]).sum(axis=0)
  assert abs(counts[0] - 1523.4) < 5 * 1523.4**0.5
  assert counts[1] > 0
