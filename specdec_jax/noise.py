"""Random numbers by name: who may look at which, and never twice.

A speculative decoder that reuses a random number it has looked at is biased,
and the text still reads well. So every number has a name, and the name is its
key: (row seed, length at the block's start, position, purpose). A rejected
position is drafted again in the next block, where the block's start, and with
it the number, is another one.

Coupled noise leaves the block's start out: draft and target then see the same
noise at a position, whichever block it is judged in (Daliri et al., arXiv
2408.07978). Only a rule whose verdict is a function of target and noise alone
may use it.
"""

import enum
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array


class Purpose(enum.IntEnum):
  """What a random number decides."""

  DRAFT = 0  # which token the draft proposes
  ACCEPT = 1  # whether the draft is kept
  NEXT = 2  # which token follows the kept ones
  RACE = 3  # coupled: which token wins at this position


class Noise(NamedTuple):
  """The noise of one block.

  Attributes:
    seed_B: each row's seed, uint32.
    length_B: the row's length when the block starts.
    coupled: whether positions alone name the noise.
  """

  seed_B: Array
  length_B: Array
  coupled: bool

  def keys(self, purpose: Purpose, position_BT: Array) -> Array:
    """One key per row and position, `[B, T]`."""
    # The generator is named: under the process's default, a row of a batch may
    # differ from the same row alone.
    key_B = jax.vmap(lambda seed: jax.random.key(seed, impl="threefry2x32"))(
      self.seed_B
    )
    if not self.coupled:
      key_B = jax.vmap(jax.random.fold_in)(key_B, self.length_B)
    # Position and purpose make one number, which saves a hash.
    name_BT = position_BT * len(Purpose) + purpose
    fold_in_T = jax.vmap(jax.random.fold_in, in_axes=(None, 0))
    return jax.vmap(fold_in_T)(key_B, name_BT)

  def uniform(self, purpose: Purpose, position_BT: Array) -> Array:
    """Two independent uniforms in [0, 1) per position, `[B, T, 2]`."""
    keys_BT = self.keys(purpose, position_BT)
    return jax.vmap(jax.vmap(lambda key: jax.random.uniform(key, (2,))))(
      keys_BT
    )

  def gumbel(self, position_BT: Array, size: int) -> Array:
    """Standard Gumbel noise over `size` tokens, `[B, T, V]`."""

    def one(key: Array) -> Array:
      # The second uniform says what the 23 bits of the first do not. Else no
      # noise exceeds 15.9, and a token of probability 1e-8 never wins. Each has
      # a key of its own: a token's noise does not depend on how many there are,
      # since meshes pad vocabularies.
      high, low = (
        jax.random.uniform(half, (size,)) for half in jax.random.split(key)
      )
      fine = high + 2.0**-23 * low + 2.0**-47
      return -jnp.log(-jnp.log1p(-jnp.where(high < 0.5, fine, high)))

    return jax.vmap(jax.vmap(one))(self.keys(Purpose.RACE, position_BT))

  def positions(self, count: int) -> Array:
    """The `count` positions that this block may fill, `[B, count]`."""
    return self.length_B[:, None] + jnp.arange(count)[None, :]
