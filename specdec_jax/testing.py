"""Tiny models and the oracle of exact laws, for tests, users and notebooks.

The oracle does not sample. It enumerates every draft and every outcome of the
tests of a rejection rule and adds up how probable each output is; a lossless
rule gives the target's law to rounding.
"""

import dataclasses
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from specdec_jax.acceptance.rejection import RejectionRule
from specdec_jax.arrays import put, window
from specdec_jax.models.language_model import LanguageModel
from specdec_jax.sampling import LOG_ZERO
from specdec_jax.sharding import make_mesh
from specdec_jax.types import Array, Proposal, PyTree

Tokens = tuple[int, ...]
# The law of the next token after some tokens: V probabilities.
NextLaw = Callable[[Tokens], np.ndarray]


def emission_law(
  rule: RejectionRule,
  target: NextLaw,
  draft: NextLaw,
  num_draft_tokens: int,
  context: Tokens = (),
  *,
  reported: NextLaw | None = None,
  point_mass: bool = False,
  width: int | None = None,
) -> dict[Tokens, float]:
  """How probable each output of one block is: kept drafts and next token.

  Args:
    rule: the rule to examine.
    target: p.
    draft: q. A block drafts x_1 ~ q(.|context), x_2 ~ q(.|context, x_1), ..
    num_draft_tokens: K.
    context: the tokens before the block.
    reported: what the drafter says that q is; the truth by default.
    point_mass: whether the drafter says that it picked its tokens, as a lookup
      does. Nobody can tell a pick from a draw, so this is exact for any q.
    width: columns of the proposal, K by default. The others hold filler, as
      in a row that drafted fewer tokens than its neighbours.

  Returns:
    Probabilities by emitted tokens, of lengths 1 to K + 1.
  """
  count = num_draft_tokens
  filler = (width or count) - count
  vocab_size = len(target(context))
  drafts_RK = np.array(
    list(itertools.product(range(vocab_size), repeat=count)), np.int32
  ).reshape(vocab_size**count, count)
  # The tests that may pass or fail: one outcome in each row.
  passed_PK = np.array(
    list(itertools.product((False, True), repeat=count)), bool
  ).reshape(2**count, count)
  laws = [
    _along((target, draft, reported or draft), context, drafts)
    for drafts in drafts_RK
  ]
  p_RTV, q_RTV, said_RTV = np.array(laws).swapaxes(0, 1)
  q_RKV, said_RKV = q_RTV[:, :-1], said_RTV[:, :-1]
  drawn_R = np.prod(
    np.take_along_axis(q_RKV, drafts_RK[..., None], axis=2)[..., 0], axis=1
  )
  more = ((0, 0), (0, filler))
  tokens_RK = np.pad(drafts_RK, more, constant_values=vocab_size - 1)
  accept_RK, kept_P, next_RPV = _judge(
    rule,
    point_mass,
    _log(np.pad(p_RTV, (*more, (0, 0)), constant_values=1 / vocab_size)),
    _log(np.pad(said_RKV, (*more, (0, 0)), constant_values=1 / vocab_size)),
    jnp.asarray(tokens_RK),
    jnp.full(len(tokens_RK), count),
    jnp.asarray(np.pad(passed_PK, more)),
  )
  accept_RK = np.asarray(accept_RK, float)
  kept_P = np.asarray(kept_P)
  next_RPV = np.asarray(next_RPV, float)
  law: dict[Tokens, float] = {}
  for row in np.flatnonzero(drawn_R):
    if accept_RK[row, count:].any():
      raise AssertionError(f"{rule} may keep filler: {accept_RK[row]}")
    accept_K = accept_RK[row, :count]
    outcome_P = np.where(passed_PK, accept_K, 1 - accept_K).prod(axis=1)
    next_PV = next_RPV[row] / next_RPV[row].sum(axis=1, keepdims=True)
    share_PV = drawn_R[row] * outcome_P[:, None] * next_PV
    for outcome, token in zip(*np.nonzero(share_PV), strict=True):
      kept = drafts_RK[row, : kept_P[outcome]].tolist()
      emitted = (*kept, int(token))
      law[emitted] = law.get(emitted, 0.0) + float(share_PV[outcome, token])
  return law


def _along(
  laws: Sequence[NextLaw], context: Tokens, drafts: np.ndarray
) -> list[list[np.ndarray]]:
  """Each of the laws after each prefix of the drafts."""
  texts = [(*context, *drafts[:i].tolist()) for i in range(len(drafts) + 1)]
  return [[law(text) for text in texts] for law in laws]


@functools.partial(jax.jit, static_argnums=(0, 1))
def _judge(
  rule: RejectionRule,
  point_mass: bool,
  log_p_RTV: Array,
  log_q_RKV: Array,
  tokens_RK: Array,
  length_R: Array,
  passed_PK: Array,
) -> tuple[Array, Array, Array]:
  """What a rule says to every draft R, and after every outcome P of tests."""
  rows, outcomes = len(tokens_RK), len(passed_PK)

  def proposal(times: int) -> Proposal:
    def repeat(array: Array) -> Array:
      return jnp.repeat(array, times, axis=0)

    log_q = None if point_mass else repeat(log_q_RKV)
    return Proposal(repeat(tokens_RK), repeat(length_R), log_q)

  accept_RK = rule.acceptance(log_p_RTV, proposal(1))
  kept_P = rule.kept(passed_PK)
  weight = rule.residual(
    jnp.repeat(log_p_RTV, outcomes, axis=0),
    proposal(outcomes),
    jnp.tile(kept_P, rows),
  )
  return accept_RK, kept_P, weight.reshape(rows, outcomes, -1)


def speculative_law(
  rule: RejectionRule,
  target: NextLaw,
  draft: NextLaw,
  num_draft_tokens: int,
  length: int,
  context: Tokens = (),
  *,
  reported: NextLaw | None = None,
  point_mass: bool = False,
) -> dict[Tokens, float]:
  """The joint law of the first `length` tokens, over as many blocks as needed.

  Blocks are independent given the text, as fresh noise makes them.
  """

  @functools.cache
  def after(text: Tokens) -> Mapping[Tokens, float]:
    left = length - len(text)
    if left <= 0:
      return {(): 1.0}
    joint: dict[Tokens, float] = {}
    block = emission_law(
      rule,
      target,
      draft,
      num_draft_tokens,
      context + text,
      reported=reported,
      point_mass=point_mass,
    )
    for emitted, share in block.items():
      for tail, tail_share in after(text + emitted).items():
        tokens = (emitted + tail)[:left]
        joint[tokens] = joint.get(tokens, 0.0) + share * tail_share
    return joint

  return dict(after(()))


def target_law(
  target: NextLaw, length: int, context: Tokens = ()
) -> dict[Tokens, float]:
  """The joint law of the first `length` tokens of plain decoding."""
  if length == 0:
    return {(): 1.0}
  joint = {}
  for token, share in enumerate(target(context)):
    if share > 0:
      rest = target_law(target, length - 1, (*context, token))
      for tail, tail_share in rest.items():
        joint[(token, *tail)] = share * tail_share
  return joint


def total_variation(
  a: Mapping[Tokens, float], b: Mapping[Tokens, float]
) -> float:
  """Half the sum of absolute differences: 0 for equal laws, at most 1."""
  return sum(abs(a.get(x, 0) - b.get(x, 0)) for x in a.keys() | b.keys()) / 2


def expected_tokens(law: Mapping[Tokens, float]) -> float:
  """The mean length of what a block emits."""
  return sum(len(tokens) * share for tokens, share in law.items())


def goodness_of_fit(
  samples: Iterable[Sequence[int]], law: Mapping[Tokens, float]
) -> float:
  """The p-value of Pearson's chi-square test of samples against a law.

  A right sampler falls below a threshold t about as often as t. Outcomes that
  the law expects fewer than 20 times are pooled, where the approximation by a
  chi-square distribution is good; an outcome of probability 0 gives 0.
  """
  count = Counter(tuple(sample) for sample in samples)
  if any(law.get(outcome, 0) == 0 for outcome in count):
    return 0.0
  total = sum(count.values())
  cells = [(count[x], share * total) for x, share in law.items() if share > 0]
  large = [cell for cell in cells if cell[1] >= 20]
  small = [cell for cell in cells if cell[1] < 20]
  if small:
    large.append((sum(n for n, _ in small), sum(e for _, e in small)))
  statistic = sum((n - e) ** 2 / e for n, e in large)
  freedom = len(large) - 1
  if not freedom:
    return 1.0
  return float(jax.scipy.special.gammaincc(freedom / 2, statistic / 2))


def _log(probability: np.ndarray) -> Array:
  with np.errstate(divide="ignore"):
    log = np.log(probability)
  return jnp.asarray(np.maximum(log, LOG_ZERO), jnp.float32)


@dataclasses.dataclass(frozen=True)
class TableNetwork:
  """A model whose next token depends on the two newest: a table of logits.

  It reads the older of the two from its cache, so that a fault in lengths,
  slots or rollback changes its law. Its weights are the table, `[V, V, V]`:
  logits of the next token by older and newest token. What it shows to taps is
  the number of the pair, older * V + newest.
  """

  vocab_size: int
  max_length: int = 4096
  min_rows: int = 1
  cache_axes: tuple[str | None, ...] = ()

  def init_cache(self, batch: int, slots: int) -> PyTree:
    return jnp.zeros((batch, slots), jnp.int32)

  def forward(
    self,
    params: PyTree,
    tokens_BT: Array,
    start_B: Array,
    cache: PyTree,
    taps: tuple[int, ...] = (),
  ) -> tuple[Array, Array, PyTree]:
    width = tokens_BT.shape[1]
    cache_BS = put(cache, start_B, tokens_BT)
    older_BT = window(jnp.pad(cache_BS, ((0, 0), (1, 0))), start_B, width)
    pair_BT1 = (older_BT * self.vocab_size + tokens_BT)[..., None]
    hidden_BT1 = pair_BT1.astype(jnp.float32)
    return hidden_BT1, jnp.tile(hidden_BT1, (1, 1, len(taps))), cache_BS

  def head(self, params: PyTree, hidden_BTD: Array) -> Array:
    # Looked up, not multiplied: a NaN of one row stays in that row.
    pair_BT = hidden_BTD[..., 0].astype(jnp.int32)
    return params.reshape(-1, self.vocab_size)[pair_BT]


def table_model(
  table_VVV: np.ndarray, *, eos_ids: Tokens = (), max_length: int = 4096
) -> LanguageModel:
  """A model without tokenizer from a table of probabilities.

  Args:
    table_VVV: the next token's law by older and newest token. After a prompt
      of one token, the older one counts as 0. `[V]` or `[V, V]` tables repeat.
    eos_ids: ids that end a row.
    max_length: its context.
  """
  table_VVV = np.asarray(table_VVV, float)
  size = table_VVV.shape[-1]
  table_VVV = np.broadcast_to(table_VVV, (size, size, size))
  return LanguageModel(
    network=TableNetwork(size, max_length),
    params=_log(table_VVV),
    tokenizer=None,
    eos_ids=eos_ids,
    mesh=make_mesh(),
    name="table",
    generation_config={},
  )
