"""Acceptance rules: which drafts stay, and which token follows them."""

from specdec_jax.acceptance.block import BlockRule
from specdec_jax.acceptance.greedy import GreedyRule
from specdec_jax.acceptance.gumbel import GumbelRule
from specdec_jax.acceptance.lossy import Lenient, Threshold, Typical
from specdec_jax.acceptance.token import TokenRule
from specdec_jax.types import AcceptanceRule

__all__ = [
  "LOSSY",
  "BlockRule",
  "GreedyRule",
  "GumbelRule",
  "Lenient",
  "Threshold",
  "TokenRule",
  "Typical",
  "named_rule",
]

_NAMES: dict[str, AcceptanceRule] = {
  "token": TokenRule(),
  "block": BlockRule(),
  "gumbel": GumbelRule(),
  "threshold": Threshold(),
  "typical": Typical(),
  "lenient": Lenient(),
}
# The names of those that change the target's distribution.
LOSSY = ("threshold", "typical", "lenient")


def named_rule(rule: str | AcceptanceRule) -> AcceptanceRule:
  """The rule of this name; a rule object is returned as it is.

  Raises:
    ValueError: no rule has this name.
  """
  found = _NAMES.get(rule) if isinstance(rule, str) else rule
  if not callable(found):
    raise ValueError(
      f"rule: expected one of {', '.join(_NAMES)} or a rule object, got "
      f"{rule!r}"
    )
  return found
