"""Stop strings as one automaton, over bytes and over tokens.

A stop string may begin and end inside of tokens, and span many of them. So it
is looked for in the bytes that the tokens write. The automaton of Aho and
Corasick ("Efficient string matching", CACM 1975) knows at each byte the longest
end of the text with which a stop string may begin; folding a token's bytes
into one step makes it a table that a device looks up.
"""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

StopSet = tuple[str, ...]

_LEAST_STATES = 16


@dataclasses.dataclass(frozen=True)
class StopStrings:
  """The automaton of one or more sets of stop strings, each with its root.

  Attributes:
    roots: the first state of each set.
    byte_table: the next state for each state and byte, `[A, 256]`.
    depth_A: how many bytes of a stop string the text ends with.
    length_A: the length in bytes of the longest stop string that the text ends
      with; 0 if with none.
    table_AV: the state after each token, bitwise inverted (~) where a stop
      string ends in it. Padded with states that nothing leads to, so that
      programs are compiled for few sizes.
  """

  roots: dict[StopSet, int]
  byte_table: np.ndarray
  depth_A: np.ndarray
  length_A: np.ndarray
  table_AV: np.ndarray

  @staticmethod
  @functools.lru_cache(maxsize=1)
  def of(
    sets: tuple[StopSet, ...], token_bytes: tuple[bytes, ...]
  ) -> "StopStrings":
    """Builds the automaton.

    Args:
      sets: each a set of stop strings; no two are equal.
      token_bytes: the bytes that each token writes, `[V]`.
    """
    parts = [_aho_corasick([stop.encode() for stop in one]) for one in sets]
    sizes = [len(part[1]) for part in parts]
    begins = np.cumsum([0, *sizes[:-1]])
    byte_table = np.concatenate(
      [part[0] + begin for part, begin in zip(parts, begins, strict=True)]
    )
    depth_A = np.concatenate([part[1] for part in parts])
    length_A = np.concatenate([part[2] for part in parts])
    roots = dict(zip(sets, begins.tolist(), strict=True))
    table_AV = _fold(byte_table, length_A > 0, token_bytes)
    return StopStrings(roots, byte_table, depth_A, length_A, table_AV)


def _aho_corasick(
  patterns: Sequence[bytes],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Next states `[A, 256]`, depths and lengths of matches `[A]`; root is 0."""
  children: list[dict[int, int]] = [{}]
  depth, length = [0], [0]
  for pattern in patterns:
    node = 0
    for byte in pattern:
      if byte not in children[node]:
        children[node][byte] = len(children)
        children.append({})
        depth.append(depth[node] + 1)
        length.append(0)
      node = children[node][byte]
    length[node] = depth[node]
  # Breadth first: a node's failure, its longest proper suffix that is a node,
  # is nearer to the root and done already.
  table = np.zeros((len(children), 256), np.int32)
  failure = [0] * len(children)
  for node in sorted(range(len(children)), key=depth.__getitem__):
    table[node] = table[failure[node]]
    for byte, child in children[node].items():
      if node:
        failure[child] = int(table[failure[node], byte])
      table[node, byte] = child
    # The longest match wins, which is the node's own if it is one.
    length[node] = length[node] or length[failure[node]]
  return table, np.array(depth), np.array(length)


def _fold(
  byte_table: np.ndarray, match_A: np.ndarray, token_bytes: Sequence[bytes]
) -> np.ndarray:
  """The table over tokens, `[A, V]`: all states through all bytes at once."""
  states = len(byte_table)
  padded = max(_LEAST_STATES, 1 << (states - 1).bit_length())
  sizes = np.array([len(written) for written in token_bytes])
  longest_first = np.argsort(-sizes, kind="stable")
  byte_LV = np.zeros((sizes.max(initial=0), len(sizes)), np.uint8)
  for token, written in enumerate(token_bytes):
    byte_LV[: len(written), token] = np.frombuffer(written, np.uint8)
  byte_LV, sizes = byte_LV[:, longest_first], sizes[longest_first]
  state_AV = np.repeat(
    np.arange(states, dtype=np.int32)[:, None], len(sizes), 1
  )
  matched_AV = np.zeros(state_AV.shape, bool)
  for place, byte_V in enumerate(byte_LV):
    count = np.searchsorted(-sizes, -place, side="left")  # tokens of more bytes
    state = byte_table[state_AV[:, :count], byte_V[:count]]
    state_AV[:, :count] = state
    matched_AV[:, :count] |= match_A[state]
  table_AV = np.zeros((padded, len(sizes)), np.int32)
  table_AV[:states, longest_first] = np.where(matched_AV, ~state_AV, state_AV)
  return table_AV
