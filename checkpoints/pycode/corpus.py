"""Fetches the Python source that the pycode pair is trained on.

    python checkpoints/pycode/corpus.py --out FOLDER

downloads the wheels pinned in packages.toml with pip, takes the standard
library of the interpreter that runs it, which must be Python 3.13.0 as released
(there is no package of it), and writes to FOLDER

* train.jsonl and heldout.jsonl, a file of source a line:
  {"text": ..., "source": "package/path"};
* sources.md, a table of what they are made of.

The same packages.toml gives the same bytes. Wheels are kept in
FOLDER/downloads, so a run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import filters

STDLIB = "python"
STDLIB_VERSION = "3.13.0"

# Of the standard library: its tests, its applications, and tables. pydoc_data
# is generated, __phello__ a test. What is named _sysconfigdata* tells of the
# machine that built it.
LEFT_OUT_STDLIB = frozenset(
  (
    *("test", "tests", "idlelib", "lib2to3", "turtledemo", "ensurepip"),
    *("encodings", "pydoc_data", "__phello__", "__hello__.py"),
  )
)

# No package gives more, lest its habits become the model's.
MAX_PACKAGE_CHARS = 4_000_000
# Tests may be this part of what a package gives beside them: a fifth in all.
TESTS_TO_REST = 0.25
# A file is left out where more than this share of its runs of lines is in the
# files before it, or in what is held out.
COPY_SHARE = 0.5
HELDOUT_SHARE = 0.1


@dataclass(frozen=True)
class Package:
  """A pinned source.

  Attributes:
    name: as the index has it.
    version: exact.
    licence: an SPDX expression.
    split: "train" or "heldout".
    sha256: of the wheel; for the standard library, of the files that are
      read, see `digest`.
  """

  name: str
  version: str
  licence: str
  split: str
  sha256: str


@dataclass(frozen=True)
class Source:
  """A cleaned file.

  Attributes:
    path: the package's name and the path in it.
    text: what the model reads.
    is_test: whether it is a test, by its path.
  """

  path: str
  text: str
  is_test: bool


def read_packages(path: Path) -> list[Package]:
  """The pinned packages, sorted by name."""
  tables = tomllib.loads(path.read_text(encoding="utf-8"))
  packages = [Package(name, **table) for name, table in tables.items()]
  for package in packages:
    if package.split not in ("train", "heldout"):
      raise ValueError(
        f"{package.name}: expected split train or heldout, got {package.split}"
      )
  return sorted(packages, key=lambda package: package.name)


def choose(sources: Iterable[Source], limit: int) -> list[Source]:
  """Some files of a package, sorted: at most `limit` characters, few tests.

  Which ones is as good as random, but always the same.
  """
  shuffled = sorted(
    sources, key=lambda source: hashlib.sha256(source.path.encode()).digest()
  )
  kept: list[Source] = []
  for tests in (False, True):
    used = sum(len(source.text) for source in kept)
    room = min(limit - used, int(TESTS_TO_REST * used)) if tests else limit
    for source in shuffled:
      if source.is_test == tests and len(source.text) <= room:
        kept.append(source)
        room -= len(source.text)
  return sorted(kept, key=lambda source: source.path)


def digest(files: Iterable[tuple[PurePosixPath, bytes]]) -> str:
  """The sha256 of paths and contents."""
  total = hashlib.sha256()
  for path, data in files:
    total.update(f"{path}\0{len(data)}\0".encode() + data)
  return total.hexdigest()


def fetch(package: Package, folder: Path) -> Path:
  """The package's wheel, downloaded unless it lies there.

  Raises:
    ValueError: pip cannot download it.
  """
  folder = folder / f"{package.name}-{package.version}"
  for path in sorted(folder.glob("*.whl")):
    if hashlib.sha256(path.read_bytes()).hexdigest() == package.sha256:
      return path
  with tempfile.TemporaryDirectory() as scratch:
    pin = Path(scratch) / "requirements.txt"
    pin.write_text(
      f"{package.name}=={package.version} --hash=sha256:{package.sha256}\n"
    )
    # A wheel with compiled parts is one of many. The platform is fixed, so
    # that the same is taken on any machine; its Python files serve them all.
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--python-version=311"]
    command += ["--implementation=cp", "--require-hashes", "-r", str(pin)]
    for tag in ("manylinux_2_34", "manylinux_2_28", "manylinux2014"):
      command.append(f"--platform={tag}_x86_64")
    if subprocess.run([*command, "-d", str(folder)]).returncode:
      raise ValueError(
        f"pip could not download {package.name} {package.version} with sha256 "
        f"{package.sha256}: see above"
      )
  return fetch(package, folder.parent)


def wheel_files(path: Path) -> Iterator[tuple[PurePosixPath, bytes]]:
  """Paths and contents of a wheel's Python files, sorted."""
  with zipfile.ZipFile(path) as archive:
    for name in sorted(archive.namelist()):
      if not filters.is_left_out(PurePosixPath(name)):
        yield PurePosixPath(name), archive.read(name)


def check_version() -> None:
  """Checks the interpreter, whose standard library is read.

  Raises:
    ValueError: it is not of the version that is pinned.
  """
  version = ".".join(map(str, sys.version_info[:3]))
  if version != STDLIB_VERSION:
    raise ValueError(
      f"the corpus holds the standard library of Python {STDLIB_VERSION} and "
      f"takes it from the interpreter that runs this, which is {version}; run "
      f"it with {STDLIB_VERSION}"
    )


def stdlib_files() -> Iterator[tuple[PurePosixPath, bytes]]:
  """Paths and contents of the standard library's Python files, sorted.

  Raises:
    ValueError: the interpreter is not of the version that is pinned.
  """
  check_version()
  root = Path(sysconfig.get_paths()["stdlib"])
  paths = {PurePosixPath(p.relative_to(root)): p for p in root.rglob("*.py")}
  for path in sorted(paths):
    if (
      not filters.is_left_out(path)
      and LEFT_OUT_STDLIB.isdisjoint(path.parts)
      # Beside them are folders of the build and what a distributor adds.
      and not path.name.startswith(("_sysconfigdata", "sitecustomize"))
      and not path.parts[0].startswith("config-")
    ):
      yield path, paths[path].read_bytes()


def read(
  package: Package, downloads: Path, seen: filters.Seen, heldout: filters.Seen
) -> list[Source]:
  """The files of a package that the corpus keeps.

  Args:
    package: what to read.
    downloads: where wheels are kept.
    seen: files of earlier packages; those of this one are added.
    heldout: files of the packages held out; empty for those themselves.

  Raises:
    ValueError: its files are not those that are pinned.
  """
  if package.name == STDLIB:
    files = list(stdlib_files())
    if digest(files) != package.sha256:
      raise ValueError(
        f"expected the standard library of Python {STDLIB_VERSION} as it was "
        f"released, of sha256 {package.sha256}, got {digest(files)}; use an "
        "interpreter that was built from the released source"
      )
  else:
    files = list(wheel_files(fetch(package, downloads)))
  sources = []
  for path, data in files:
    text = filters.clean(data)
    if text is None or filters.fault(text) or seen.holds(text, COPY_SHARE):
      continue
    if heldout.holds(text, HELDOUT_SHARE):
      continue
    seen.add(text)
    sources.append(
      Source(f"{package.name}/{path}", text, filters.is_test(path))
    )
  return choose(sources, MAX_PACKAGE_CHARS)


def write(path: Path, sources: Iterable[Source]) -> None:
  """Writes a JSONL file, whole or not at all."""
  part = path.with_suffix(".part")
  with part.open("w", encoding="utf-8", newline="\n") as file:
    for source in sources:
      record = {"text": source.text, "source": source.path}
      file.write(json.dumps(record, ensure_ascii=False) + "\n")
  part.replace(path)


def main() -> None:
  """Reads the flags and builds the corpus."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--out", type=Path, required=True)
  parser.add_argument(
    "--packages", type=Path, default=Path(__file__).with_name("packages.toml")
  )
  flags = parser.parse_args()
  check_version()  # before downloads, not after
  flags.out.mkdir(parents=True, exist_ok=True)
  packages = read_packages(flags.packages)
  rows = ["| package | version | licence | split | files | MB |"]
  rows.append("|---|---|---|---|--:|--:|")
  heldout = filters.Seen()
  # What is held out comes first: train leaves out what is like it.
  for split in ("heldout", "train"):
    seen = heldout if split == "heldout" else filters.Seen()
    none = filters.Seen() if split == "heldout" else heldout
    sources: list[Source] = []
    for package in packages:
      if package.split != split:
        continue
      kept = read(package, flags.out / "downloads", seen, none)
      sources += kept
      size = sum(len(source.text.encode()) for source in kept) / 1e6
      rows.append(
        f"| {package.name} | {package.version} | {package.licence} | {split} "
        f"| {len(kept)} | {size:.2f} |"
      )
      line = f"{split}: {package.name} {len(kept)} files, {size:.2f} MB"
      print(line, flush=True)
    write(flags.out / f"{split}.jsonl", sources)
    size = sum(len(source.text.encode()) for source in sources) / 1e6
    rows.append(f"| all | | | {split} | {len(sources)} | {size:.2f} |")
    print(f"{split}: {len(sources)} files, {size:.2f} MB in all", flush=True)
  (flags.out / "sources.md").write_text("\n".join(rows) + "\n")


if __name__ == "__main__":
  try:
    main()
  except ValueError as error:
    sys.exit(f"corpus.py: {error}")
