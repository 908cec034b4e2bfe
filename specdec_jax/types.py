"""The shared vocabulary: dimension key, plug points, and what passes them.

Dimension letters are suffixes of array names, `log_p_BTV` for example:

  B  batch (rows)               D  model width
  T  tokens in this call        F  mlp width, or width of tapped features
  K  draft length               N  query heads
  S  slots of a row's cache     M  key-value heads
  V  vocabulary                 H  head width
  E  end-of-sequence ids        L  layers
  A  states of an automaton     G  rows that enter a batch
  P  spellings, end to end      R  their bounds
  W  tokens of another model in one pass

A row's *length* counts its committed tokens; the newest of them has not been
through any model yet. Position i is the place of token i, counted from 0.
"""

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, Protocol

from jax import Array

from specdec_jax.noise import Noise

PyTree = Any

# The logarithm of probability zero: finite, so that differences, cumulative
# sums and products with zero stay numbers, and a row that is masked everywhere
# is one of numbers; its exponential is exactly 0. As a logit it bans a token at
# any temperature.
LOG_ZERO = -1e30


class Network(Protocol, Hashable):
  """A language model without its weights: what programs are compiled for.

  Hashable and static; the weights are an argument of every method.

  Attributes:
    vocab_size: V, the number of tokens of the tokenizer, or more where a mesh
      splits it; those have probability 0.
    max_length: the longest sequence the model was made for.
    min_rows: the fewest token rows that a pass may feed without falling off
      the platform's fast path.
    cache_axes: the logical axes of its cache's arrays of four dimensions, see
      `sharding`.
  """

  @property
  def vocab_size(self) -> int: ...

  @property
  def cache_axes(self) -> tuple[str | None, ...]: ...

  @property
  def max_length(self) -> int: ...

  @property
  def min_rows(self) -> int: ...

  def init_cache(self, batch: int, slots: int) -> PyTree:
    """An empty cache. Every leaf leads with B."""
    ...

  def forward(
    self,
    params: PyTree,
    tokens_BT: Array,
    start_B: Array,
    cache: PyTree,
    taps: tuple[int, ...] = (),
  ) -> tuple[Array, Array, PyTree]:
    """Runs T tokens of each row at positions start_B .. start_B + T - 1.

    Their keys and values overwrite those slots; attention sees the slots up
    to each token's own position and nothing behind it.

    Returns:
      hidden_BTD: the input of the head.
      tapped_BTF: the residual stream after each layer of `taps`, side by
        side, F = D * len(taps).
      cache: the cache with T slots of each row rewritten.
    """
    ...

  def head(self, params: PyTree, hidden_BTD: Array) -> Array:
    """Logits over the vocabulary, float32 `[B, T, V]`."""
    ...


class Features(NamedTuple):
  """What the target saw at positions start .. start + count - 1.

  All of them are committed; the rows' newest tokens are not among them.

  Attributes:
    hidden_BTF: the tapped layers' residual streams, side by side; entries at
      and past count_B are filler.
    start_B: the position of the first.
    count_B: how many there are.
  """

  hidden_BTF: Array
  start_B: Array
  count_B: Array


class Proposal(NamedTuple):
  """A drafter's guess at the next tokens of each row.

  Attributes:
    tokens_BK: the drafts; entries at and past length_B are filler.
    length_B: how many of them each row really drafted.
    log_q_BKV: the law each draft was drawn from; None when every draft was
      picked rather than drawn, which makes q a point mass.
  """

  tokens_BK: Array
  length_B: Array
  log_q_BKV: Array | None


class Verdict(NamedTuple):
  """What an acceptance rule decides.

  Attributes:
    kept_B: how many drafts of each row stay, a prefix of the proposal.
    next_B: the token that follows them.
  """

  kept_B: Array
  next_B: Array


Draw = Callable[[Array, Array, Array], tuple[Array, Array | None]]


class View(NamedTuple):
  """All that a drafter may look at: no seed, no key, nothing of the target.

  Attributes:
    tokens_BS: committed tokens; undefined at and past length_B.
    length_B: committed tokens of each row.
    limit_B: the length at which each row ends.
    active_B: whether the row is still running.
    draw: (logits_BTV, position_BT, draft_BK) -> (tokens_BT, log_q_BTV). Draws
      a token for each position by the row's sampling law and the rule's noise.
      The law may depend on the tokens before the position, which are the text
      and then the drafts of draft_BK; those at and past it may be anything.
      log_q is None where the rule does not need it.
  """

  tokens_BS: Array
  length_B: Array
  limit_B: Array
  active_B: Array
  draw: Draw


class Drafter(Protocol, Hashable):
  """Proposes the next tokens of each row.

  A drafter is static and hashable: programs are compiled for it. Its weights
  and other values travel separately, see `split`.

  Attributes:
    num_draft_tokens: K, how many tokens it proposes at most.
    taps: the target's layers it wants to see; () for none.
    max_length: the longest sequence it can draft for; None for any.
    cache_axes: as a network's, of what it keeps; () if it keeps no cache.
  """

  @property
  def num_draft_tokens(self) -> int: ...

  @property
  def taps(self) -> tuple[int, ...]: ...

  @property
  def max_length(self) -> int | None: ...

  @property
  def cache_axes(self) -> tuple[str | None, ...]: ...

  def bind(self, target: Any) -> "Drafter":
    """The drafter for this `LanguageModel`.

    Raises:
      ValueError: it cannot draft for it.
    """
    ...

  def split(self) -> tuple["Drafter", PyTree]:
    """The drafter without its weights, and the weights: `params` below."""
    ...

  def init(self, batch: int, slots: int) -> PyTree:
    """The drafter's own state. Every leaf leads with B."""
    ...

  def observe(
    self, params: PyTree, draft: PyTree, view: View, features: Features
  ) -> PyTree:
    """Takes in committed tokens.

    Called for each chunk of the prompt and, where the drafter has taps,
    after every verify pass. The same position may be shown twice.
    """
    ...

  def propose(
    self, params: PyTree, draft: PyTree, view: View
  ) -> tuple[Proposal, PyTree]:
    """Drafts at most K tokens after the newest committed one."""
    ...


class AcceptanceRule(Protocol, Hashable):
  """Decides how many drafts stay, and which token follows them.

  Attributes:
    coupled: whether draft and target share the noise of a position.
    needs_law: whether it reads log-probabilities; False where the order of
      the logits is enough, and no law is built.
  """

  @property
  def coupled(self) -> bool: ...

  @property
  def needs_law(self) -> bool: ...

  def draw(
    self, log_q_BTV: Array, position_BT: Array, noise: Noise, /
  ) -> tuple[Array, Array | None]:
    """Draws drafts from their law; the other half of `View.draw`.

    Returns:
      tokens_BT, and log_q_BTV where the rule wants to see it again in
      `Proposal.log_q_BKV`.
    """
    ...

  def __call__(
    self, log_p_BTV: Array, proposal: Proposal, noise: Noise, /
  ) -> Verdict:
    """Judges a proposal.

    Args:
      log_p_BTV: the target's law after each prefix of the drafts, T = K + 1.
      proposal: K drafts a row, of which proposal.length_B count.
      noise: this block's random numbers.
    """
    ...
