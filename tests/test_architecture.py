"""The rooms of docs/design.md, held by reading the source."""

import ast
import pathlib
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = ROOT / "specdec_jax"
FILES = sorted(PACKAGE.rglob("*.py"))

# From the ground up: a room imports from itself and from rooms before it. The
# package's own __init__ is the public face of all of them, commands aside.
ROOMS = (
  "visible",
  "noise",
  "types",
  "arrays",
  "host",
  "quantize",
  "sharding",
  "models",
  "loading",
  "sampling",
  "prompts",
  "acceptance",
  "drafters",
  "stopping",
  "stats",
  "trace",
  "state",
  "decode",
  "buckets",
  "memory",
  "programs",
  "results",
  "texts",
  "generation",
  "generate",
  "conversation",
  "__init__",
  "training",
  "plan",
  "audit",
  "bench",
  "report",
  "cli",
  "testing",
)

MAX_LINES = 400

# What unpickles, and thereby runs what a file says; torch loads pickles.
UNPICKLERS = {"cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve"}
FLAG_PARSERS = {"absl.flags", "absl.app", "argparse", "click", "optparse"}


def _room(module: str) -> str:
  """The room of a module's dotted name inside the package."""
  return module.split(".")[1] if "." in module else "__init__"


def _module(path: pathlib.Path) -> str:
  parts = path.relative_to(ROOT).with_suffix("").parts
  return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _walk(node: ast.AST) -> Iterator[ast.AST]:
  """All nodes that can run: not those under `if TYPE_CHECKING`."""
  yield node
  for child in ast.iter_child_nodes(node):
    if not (isinstance(child, ast.If) and _is_type_checking(child.test)):
      yield from _walk(child)


def _is_type_checking(test: ast.expr) -> bool:
  return ast.unparse(test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def _imports(source: str, module: str, is_package: bool) -> Iterator[str]:
  """Dotted names that a module imports, wherever in it the import stands.

  `from a import b` yields both a and a.b, since b may be a module.
  """
  package = module.split(".") if is_package else module.split(".")[:-1]
  for node in _walk(ast.parse(source)):
    if isinstance(node, ast.Import):
      yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      above = package[: len(package) - node.level + 1] if node.level else []
      base = ".".join([*above, *filter(None, [node.module])])
      yield base
      yield from (f"{base}.{alias.name}" for alias in node.names)


def _imports_of(path: pathlib.Path) -> set[str]:
  is_package = path.stem == "__init__"
  return set(_imports(path.read_text(), _module(path), is_package))


def _breaches(imports: set[str], module: str) -> list[str]:
  """Imports of rooms that come after the module's own."""
  own = ROOMS.index(_room(module))
  inside = (name for name in imports if name.startswith("specdec_jax."))
  later = {name for name in inside if _room(name) in ROOMS[own + 1 :]}
  if "specdec_jax" in imports and own < ROOMS.index("__init__"):
    # `from specdec_jax import x`: fine for a room x, which is seen above, but
    # not for a name that the package's face took from a room.
    names = {name for name in imports if name.count(".") == 1}
    later |= {
      name
      for name in names
      if name.startswith("specdec_jax.") and _room(name) not in ROOMS
    }
  return sorted(later)


def _at_top(node: ast.stmt) -> set[str]:
  """What a statement of a module imports when the module is imported."""
  if not isinstance(node, (ast.Import, ast.ImportFrom)):
    return set()
  return set(_imports(ast.unparse(node), "specdec_jax.bench.x", False))


def _uses(imports: set[str], libraries: set[str]) -> set[str]:
  return {
    library
    for library in libraries
    for name in imports
    if name == library or name.startswith(library + ".")
  }


def _unannotated(tree: ast.Module) -> list[str]:
  """Functions and methods that lack a type hint; nested ones may."""
  functions = ast.FunctionDef | ast.AsyncFunctionDef
  owners = [tree, *(n for n in tree.body if isinstance(n, ast.ClassDef))]
  missing = []
  for owner in owners:
    for node in owner.body:
      if not isinstance(node, functions):
        continue
      args = [
        *(node.args.posonlyargs + node.args.args + node.args.kwonlyargs),
        *filter(None, [node.args.vararg, node.args.kwarg]),
      ]
      hinted = all(a.annotation or a.arg in ("self", "cls") for a in args)
      if not (hinted and (node.returns or node.name == "__init__")):
        missing.append(node.name)
  return missing


def _name(path: pathlib.Path) -> str:
  return str(path.relative_to(PACKAGE))


each_file = pytest.mark.parametrize("path", FILES, ids=_name)


def test_there_are_files_to_check():
  assert PACKAGE / "types.py" in FILES


def test_every_room_is_known():
  rooms = {_room(_module(path)) for path in FILES}
  assert rooms <= set(ROOMS), "give a new room its place in ROOMS"


@each_file
def test_imports_go_one_way(path):
  assert _breaches(_imports_of(path), _module(path)) == []


@each_file
def test_files_stay_small(path):
  assert len(path.read_text().splitlines()) <= MAX_LINES


@each_file
def test_functions_have_type_hints(path):
  assert _unannotated(ast.parse(path.read_text())) == []


# What runs another implementation beside this one; nothing imports it unless
# that is asked for.
PEER = PACKAGE / "bench" / "peer.py"


@each_file
def test_only_the_tokenizer_imports_transformers(path):
  if path not in (PACKAGE / "loading" / "tokenizer.py", PEER):
    assert not _uses(_imports_of(path), {"transformers"})


@each_file
def test_flags_live_in_cli(path):
  if _room(_module(path)) != "cli":
    assert not _uses(_imports_of(path), FLAG_PARSERS)


@each_file
def test_nothing_is_unpickled_and_torch_is_not_needed(path):
  torch = set() if path == PEER else {"torch"}
  assert not _uses(_imports_of(path), UNPICKLERS | torch)


def test_the_peer_is_imported_when_it_is_asked_for_only():
  importers = {
    path
    for path in FILES
    for node in ast.parse(path.read_text()).body
    if _at_top(node) & {"specdec_jax.bench.peer"}
  }
  assert not importers
  for node in ast.parse(PEER.read_text()).body:
    assert not _uses(_at_top(node), {"torch", "transformers"})


@pytest.mark.parametrize(
  "source, module, breaches",
  [
    ("import specdec_jax.decode", "specdec_jax.sampling", ["decode"]),
    ("from specdec_jax import decode", "specdec_jax.types", ["decode"]),
    ("from specdec_jax import load", "specdec_jax.models.rope", ["load"]),
    ("def f():\n  from .. import cli", "specdec_jax.models.rope", ["cli"]),
    ("if x:\n  from .. import cli", "specdec_jax.models.rope", ["cli"]),
    ("if TYPE_CHECKING:\n  from .. import cli", "specdec_jax.models.rope", []),
    ("from . import rope", "specdec_jax.models.attention", []),
    ("from specdec_jax import types", "specdec_jax.decode", []),
    ("from specdec_jax.models import rope", "specdec_jax.models.config", []),
    ("from specdec_jax import load", "specdec_jax.cli.generate", []),
  ],
)
def test_the_check_of_imports_sees(source, module, breaches):
  found = _breaches(set(_imports(source, module, False)), module)
  assert found == [f"specdec_jax.{name}" for name in breaches]
