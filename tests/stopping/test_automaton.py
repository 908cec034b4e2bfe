"""The automaton finds what a search in the bytes finds."""

import random

import jax.numpy as jnp
import numpy as np
import pytest

from specdec_jax.stopping import StopStrings, find_end

NO_EOS = jnp.full((1, 1), -1)


def _first(data: bytes, stops, bounds) -> tuple[int, int] | None:
  """Token in which the first stop string is complete, and where it begins."""
  for end in range(1, len(data) + 1):
    lengths = [
      len(s.encode()) for s in stops if data[:end].endswith(s.encode())
    ]
    if lengths:
      token = next(i for i, bound in enumerate(bounds) if bound >= end)
      return token, end - max(lengths)
  return None


def _random(rng: random.Random, alphabet: bytes, most: int) -> bytes:
  return bytes(rng.choices(alphabet, k=rng.randrange(1, most + 1)))


@pytest.mark.parametrize("seed", range(40))
def test_any_tokens_and_any_stops(seed):
  rng = random.Random(seed)
  alphabet = b"ab" if seed % 2 else "aé日".encode()
  pieces = [b"", *(_random(rng, alphabet, 5) for _ in range(12))]
  sets = []
  while len(sets) < 3:
    stops = [_random(rng, b"ab", 4).decode() for _ in range(rng.randrange(4))]
    if seed % 2 == 0:
      stops = [rng.choice(["é", "aé", "日", "é日a", "日日"]) for _ in stops]
    if tuple(stops) not in sets:
      sets.append(tuple(stops))
  found = StopStrings.of(tuple(sets), tuple(pieces))
  table = jnp.asarray(found.table_AV)
  for stops in sets:
    tokens = rng.choices(range(len(pieces)), k=12)
    data = b"".join(pieces[t] for t in tokens)
    bounds = np.cumsum([len(pieces[t]) for t in tokens])
    expected = _first(data, stops, bounds)
    state, place = jnp.asarray([found.roots[stops]]), None
    for begin in range(0, 12, 4):  # in blocks
      block = jnp.asarray([tokens[begin : begin + 4]])
      end = find_end(block, jnp.asarray([4]), NO_EOS, state, table)
      state = end.state_B
      if end.stop_B[0]:
        place = begin + int(end.count_B[0]) - 1
        break
    assert place == (expected and expected[0])


def test_few_sizes_of_tables():
  pieces = tuple(bytes([byte]) for byte in range(97, 123))
  sizes = {
    StopStrings.of((("x" * n, "stop"),), pieces).table_AV.shape
    for n in range(1, 40)
  }
  assert {states for states, _ in sizes} == {16, 32, 64}


def test_each_set_has_states_of_its_own():
  found = StopStrings.of(((), ("ab",), ("b",)), (b"a", b"b"))
  table = found.table_AV
  assert table[found.roots[()]].tolist() == [found.roots[()]] * 2
  assert table[found.roots[("ab",)], 1] == found.roots[("ab",)]
  assert table[found.roots[("b",)], 1] < 0
