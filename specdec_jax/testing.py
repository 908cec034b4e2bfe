"""Tiny models and the oracle of exact laws, for tests, users and notebooks.

The oracle does not sample. It enumerates every draft and every outcome of the
tests of a rejection rule and adds up how probable each output is; a lossless
rule gives the target's law to rounding.
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping

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
  point_mass: bool = False,
) -> dict[Tokens, float]:
  """How probable each output of one block is: kept drafts and next token.

  Args:
    rule: the rule to examine.
    target: p.
    draft: q. A block drafts x_1 ~ q(.|context), x_2 ~ q(.|context, x_1), ..
    num_draft_tokens: K.
    context: the tokens before the block.
    point_mass: whether the drafter reports picks instead of q, as a lookup
      does; the drafts are then still enumerated with the probabilities of
      `draft`, which must be one-hot for that to be honest.

  Returns:
    Probabilities by emitted tokens, of lengths 1 to K + 1.
  """
  vocab_size = len(target(context))
  law: dict[Tokens, float] = {}
  passes = itertools.product((False, True), repeat=num_draft_tokens)
  passed_PK = np.array(list(passes), bool).reshape(-1, num_draft_tokens)
  for drafts in itertools.product(range(vocab_size), repeat=num_draft_tokens):
    prefixes = [context + drafts[:i] for i in range(num_draft_tokens + 1)]
    q_KV = [draft(prefix) for prefix in prefixes[:-1]]
    drawn = np.prod([q_V[x] for q_V, x in zip(q_KV, drafts, strict=True)])
    if drawn == 0:
      continue
    log_p_TV = _log(np.array([target(prefix) for prefix in prefixes]))
    log_q_KV = _log(np.array(q_KV).reshape(-1, vocab_size))
    # One row of the batch for each outcome of the K tests.
    rows = len(passed_PK)
    log_p_PTV = jnp.tile(log_p_TV, (rows, 1, 1))
    proposal = Proposal(
      tokens_BK=jnp.tile(jnp.array(drafts, jnp.int32), (rows, 1)),
      length_B=jnp.full(rows, num_draft_tokens),
      log_q_BKV=None if point_mass else jnp.tile(log_q_KV, (rows, 1, 1)),
    )
    accept_K = np.asarray(rule.acceptance(log_p_PTV, proposal)[0], float)
    outcome_P = np.where(passed_PK, accept_K, 1 - accept_K).prod(axis=1)
    kept_P = rule.kept(jnp.asarray(passed_PK))
    next_PV = np.asarray(rule.residual(log_p_PTV, proposal, kept_P), float)
    next_PV = next_PV / next_PV.sum(axis=1, keepdims=True)
    for outcome, kept, next_V in zip(
      outcome_P, np.asarray(kept_P), next_PV, strict=True
    ):
      for token in range(vocab_size):
        emitted = (*drafts[:kept], token)
        share = drawn * outcome * next_V[token]
        law[emitted] = law.get(emitted, 0.0) + share
  return {tokens: share for tokens, share in law.items() if share > 0}


def speculative_law(
  rule: RejectionRule,
  target: NextLaw,
  draft: NextLaw,
  num_draft_tokens: int,
  length: int,
  context: Tokens = (),
  *,
  point_mass: bool = False,
) -> dict[Tokens, float]:
  """The joint law of the first `length` tokens, over as many blocks as needed.

  Blocks are independent given the text, as fresh noise makes them.
  """
  joint: dict[Tokens, float] = {}
  block = emission_law(
    rule, target, draft, num_draft_tokens, context, point_mass=point_mass
  )
  for emitted, share in block.items():
    if len(emitted) >= length:
      rest: Mapping[Tokens, float] = {(): 1.0}
    else:
      rest = speculative_law(
        rule,
        target,
        draft,
        num_draft_tokens,
        length - len(emitted),
        context + emitted,
        point_mass=point_mass,
      )
    for tail, tail_share in rest.items():
      tokens = (emitted + tail)[:length]
      joint[tokens] = joint.get(tokens, 0.0) + share * tail_share
  return joint


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


def _log(probability: np.ndarray) -> Array:
  with np.errstate(divide="ignore"):
    log = np.log(probability)
  return jnp.asarray(np.maximum(log, LOG_ZERO), jnp.float32)


@dataclasses.dataclass(frozen=True)
class TableNetwork:
  """A model whose next token depends on the two newest: a table of logits.

  It reads the older of the two from its cache, so that a fault in lengths,
  slots or rollback changes its law. Its weights are the table, `[V, V, V]`:
  logits of the next token by older and newest token.
  """

  vocab_size: int
  max_length: int = 4096
  min_rows: int = 1

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
    pair_BT = older_BT * self.vocab_size + tokens_BT
    hidden_BTD = jax.nn.one_hot(pair_BT, self.vocab_size**2)
    tapped_BTF = jnp.tile(hidden_BTD, (1, 1, len(taps)))
    return hidden_BTD, tapped_BTF, cache_BS

  def head(self, params: PyTree, hidden_BTD: Array) -> Array:
    return hidden_BTD @ params.reshape(-1, self.vocab_size)


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
