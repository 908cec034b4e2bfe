"""The pair of small models for Python source that comes with the package."""

from pathlib import Path

PREFIX = "embedded:"  # no id of the hub has a colon
TARGET = f"{PREFIX}pycode/target"
DRAFT = f"{PREFIX}pycode/draft"

_PACKAGE = Path(__file__).parents[1]
# Where a wheel puts them, and where a checkout has them.
_ROOTS = (_PACKAGE / "checkpoints", _PACKAGE.parent / "checkpoints")


def folder(name: str) -> Path:
  """Finds a model of the pair.

  Args:
    name: `TARGET` or `DRAFT`.

  Raises:
    ValueError: there is no model of that name, or its files are not there.
  """
  if name not in (TARGET, DRAFT):
    raise ValueError(f"{name}: expected {TARGET} or {DRAFT}")
  path = name.removeprefix(PREFIX)
  for root in _ROOTS:
    if (root / path).is_dir():
      return root / path
  raise ValueError(
    f"{name}: expected its files in {' or '.join(map(str, _ROOTS))}, found "
    "none; install the package again, or name another model"
  )
