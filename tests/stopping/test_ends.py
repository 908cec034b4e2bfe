"""Where the new tokens of a row end."""

import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax.stopping import find_end

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
def test_eos(tokens, count, left, found):
  end = find_end(jnp.array([tokens]), jnp.array([count]), EOS)
  assert (int(end.count_B[0]), bool(end.eos_B[0])) == (left, found)
  assert not end.stop_B.any()


def test_each_row_has_its_own_ids():
  eos_BE = jnp.array([[1, -1], [2, 3], [-1, -1]])
  token_BT = jnp.tile(jnp.array([0, 1, 2, 3]), (3, 1))
  end = find_end(token_BT, jnp.full(3, 4), eos_BE)
  np.testing.assert_array_equal(end.count_B, [2, 3, 4])
  np.testing.assert_array_equal(end.eos_B, [True, True, False])


# State 1 follows token 1; token 2 after it completes a stop string.
TABLE = jnp.array([[0] * 9, [0] * 9]).at[:, 1].set(1).at[1, 2].set(~0)


@pytest.mark.parametrize(
  "tokens, state, count, early, left, stop, after",
  [
    ([1, 2, 3, 1], 0, 4, 0, 2, True, 0),
    ([3, 1, 2, 1], 0, 4, 2, 3, True, 0),
    ([2, 1, 1, 1], 1, 4, 0, 1, True, 0),  # begun in an earlier block
    ([1, 2, 1, 2], 0, 4, 2, 4, True, 0),  # the first comes too early
    ([1, 2, 1, 3], 0, 3, 2, 3, False, 1),  # goes on from there
    ([1, 2, 3, 4], 0, 1, 0, 1, False, 1),  # behind what counts
    ([1, 2, 3, 4], 1, 0, 0, 0, False, 1),  # a row that has ended
  ],
)
def test_stop_strings(tokens, state, count, early, left, stop, after):
  end = find_end(
    jnp.array([tokens]),
    jnp.array([count]),
    EOS,
    jnp.array([state]),
    TABLE,
    jnp.array([early]),
  )
  got = (int(end.count_B[0]), bool(end.stop_B[0]), int(end.state_B[0]))
  assert got == (left, stop, after)


@pytest.mark.parametrize(
  "tokens, left, eos", [([7, 1, 2], 1, True), ([1, 2, 7], 2, False)]
)
def test_what_comes_first_ends_the_row(tokens, left, eos):
  end = find_end(
    jnp.array([tokens]), jnp.array([3]), EOS, jnp.array([0]), TABLE
  )
  assert int(end.count_B[0]) == left
  assert (bool(end.eos_B[0]), bool(end.stop_B[0])) == (eos, not eos)
