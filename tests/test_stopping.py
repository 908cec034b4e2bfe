import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax.stopping import until_eos

EOS = jnp.array([[7, 8, -1, -1]])


@pytest.mark.parametrize(
  "tokens, count, left, found",
  [
    ([1, 2, 3, 4], 4, 4, False),
    ([1, 7, 3, 7], 4, 2, True),
    ([8, 7, 3, 4], 4, 1, True),
    ([1, 2, 3, 8], 4, 4, True),
    ([1, 2, 3, 8], 3, 3, False),  # behind what counts
    ([7, 7, 7, 7], 0, 0, False),
  ],
)
def test_until_eos(tokens, count, left, found):
  count_B, found_B = until_eos(jnp.array([tokens]), jnp.array([count]), EOS)
  assert (int(count_B[0]), bool(found_B[0])) == (left, found)


def test_each_row_has_its_own_ids():
  eos_BE = jnp.array([[1, -1], [2, 3], [-1, -1]])
  token_BT = jnp.tile(jnp.array([0, 1, 2, 3]), (3, 1))
  count_B, found_B = until_eos(token_BT, jnp.full(3, 4), eos_BE)
  np.testing.assert_array_equal(count_B, [2, 3, 4])
  np.testing.assert_array_equal(found_B, [True, True, False])
