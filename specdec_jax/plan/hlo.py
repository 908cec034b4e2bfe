"""Reads what XLA has made of a program: its traffic and its collectives.

`cost_analysis` of a compiled program counts all memory alike, so that a weight
that is fetched ahead into the chip's own memory counts three times, and an
update in place as one of the whole array. Here only what crosses to HBM counts:
arrays whose layout names a memory space, `S(1)`, are on the chip.
"""

import collections
import dataclasses
import functools
import math
import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

COLLECTIVES = (
  "all-reduce",
  "all-gather",
  "reduce-scatter",
  "all-to-all",
  "collective-permute",
)
# They move nothing, or what they move is counted where it began.
_FREE = frozenset(
  {
    "parameter",
    "constant",
    "tuple",
    "get-tuple-element",
    "bitcast",
    "after-all",
    "partition-id",
    "replica-id",
    "opt-barrier",
    "add-dependency",
  }
)
_VIEWS = frozenset({"bitcast", "reshape", "convert", "copy", "transpose"})
_SLICES = frozenset({"dynamic-slice", "gather", "slice", "slice-start"})
# Which operand is new where an array is updated in place.
_UPDATES = {"dynamic-update-slice": 1, "scatter": 2}
_HEADER = re.compile(r"(ENTRY )?%?([\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"\s+(ROOT )?%?([\w.\-]+) = (.*)$")
_ARRAY = re.compile(r"([a-z][a-z0-9]*)\[([0-9,]*)\](\{[^}]*\})?")
_NAME = re.compile(r"%([\w.\-]+)")
_CALLED = re.compile(r"(?:calls|body|condition|to_apply)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")


@dataclasses.dataclass(frozen=True)
class Array:
  """An array of a program: its size, and whether it lies in HBM."""

  size: int
  in_hbm: bool


@dataclasses.dataclass(frozen=True)
class Instruction:
  """One line of a program."""

  name: str
  opcode: str
  arrays: tuple[Array, ...]
  operands: tuple[str, ...]
  rest: str
  root: bool

  @property
  def called(self) -> tuple[str, ...]:
    branches = _BRANCHES.search(self.rest)
    named = _NAME.findall(branches[1]) if branches else []
    return (*_CALLED.findall(self.rest), *named)


@dataclasses.dataclass(frozen=True)
class Collective:
  """A kind of transfer between chips.

  Attributes:
    kind: one of `COLLECTIVES`.
    axis: of the mesh; both with a comma, or "" for other groups.
    devices: how many take part.
    size: bytes of the whole array, on each device once it is done.
    depth: in how many loops it stands.
    count: how often it stands there. Extrapolation may make it a fraction.
  """

  kind: str
  axis: str
  devices: int
  size: int
  depth: int
  count: float = 1


class Module:
  """A compiled program as text."""

  def __init__(self, text: str):
    self._computations: dict[str, dict[str, Instruction]] = {}
    self._entry = ""
    inside: dict[str, Instruction] | None = None
    for line in text.splitlines():
      if header := _HEADER.match(line):
        inside = self._computations.setdefault(header[2], {})
        self._entry = header[2] if header[1] else self._entry
      elif line.startswith("}"):
        inside = None
      elif inside is not None and (match := _INSTRUCTION.match(line)):
        found = _instruction(match[2], match[3], bool(match[1]))
        inside[found.name] = found

  def traffic(self) -> int:
    """Bytes that one device reads from and writes to HBM, loops once."""
    return self._traffic(self._entry)

  def collectives(self, mesh: Mapping[str, int]) -> tuple[Collective, ...]:
    """All transfers between devices.

    Args:
      mesh: the sizes of the axes, in the order of the devices.
    """
    counts: collections.Counter[Collective] = collections.Counter()
    for instruction, depth in self._walk(self._entry, 0):
      kind = instruction.opcode.removesuffix("-start")
      if kind in COLLECTIVES:
        group = _group(instruction.rest, math.prod(mesh.values()))
        sizes = [array.size for array in instruction.arrays]
        # Where it starts apart, operands stand beside the results.
        is_whole = instruction.opcode == kind and kind != "reduce-scatter"
        size = sum(sizes) if is_whole else max(sizes)
        counts[
          Collective(kind, _axis(group, mesh), len(group), size, depth)
        ] += 1
    return tuple(
      dataclasses.replace(found, count=count) for found, count in counts.items()
    )

  def _walk(self, name: str, depth: int) -> Iterator[tuple[Instruction, int]]:
    for instruction in self._computations.get(name, {}).values():
      yield instruction, depth
      if instruction.opcode in ("while", "conditional", "call"):
        inner = depth + (instruction.opcode == "while")
        for called in instruction.called:
          yield from self._walk(called, inner)

  @functools.cache  # noqa: B019 - as long as the module itself
  def _traffic(self, name: str) -> int:
    body = self._computations.get(name, {})
    return sum(self._moved(body, instruction) for instruction in body.values())

  def _moved(self, body: Mapping[str, Instruction], it: Instruction) -> int:
    """Bytes to and from HBM of one instruction."""
    opcode = it.opcode
    if opcode in _FREE or opcode.endswith("-done"):
      return 0
    if opcode in ("while", "conditional", "call"):
      return sum(map(self._traffic, it.called))
    sources = [body[name].arrays for name in it.operands if name in body]
    if "cross_program_prefetch_index" in it.rest and any(
      it is not other
      and other.opcode == opcode
      and other.operands == it.operands
      for other in body.values()
    ):
      return 0  # the run before does it at its end, where it counts
    if opcode == "copy-start":
      new, old, *_ = it.arrays
      return new.size * (new.in_hbm + old.in_hbm)
    if opcode == "slice-start":
      old, new, *_ = it.arrays
      return new.size * (new.in_hbm + old.in_hbm)
    if opcode == "custom-call" and "ConcatBitcast" in it.rest:
      return 0
    if opcode in _SLICES:
      begin, *_ = sources[0]
      return sum(_hbm(it.arrays)) + it.arrays[0].size * begin.in_hbm
    if opcode in _UPDATES:
      new = sources[_UPDATES[opcode]][0]
      return new.size * (it.arrays[0].in_hbm + new.in_hbm)
    if opcode == "fusion" and it.called and it.called[0] in self._computations:
      return self._fused(it, sources)
    if opcode.endswith("-start"):  # results stand beside operands
      return max([array.size for array in it.arrays if array.in_hbm] or [0]) * 2
    return sum(_hbm(it.arrays)) + sum(
      size for arrays in sources for size in _hbm(arrays)
    )

  def _fused(
    self, it: Instruction, sources: Sequence[tuple[Array, ...]]
  ) -> int:
    """Bytes of a fusion: what it reads of each operand, and its results."""
    body = self._computations[it.called[0]]
    total = 0
    for name, inner in body.items():
      if inner.opcode == "parameter":
        arrays = sources[int(inner.rest)]
        if any(array.in_hbm for array in arrays):
          total += min(self._read(body, name), sum(_hbm(arrays)))
    (root,) = (inner for inner in body.values() if inner.root)
    results = root.operands if root.opcode == "tuple" else (root.name,)
    for result, array in zip(results, it.arrays, strict=False):
      if array.in_hbm:
        total += min(self._written(body, result), array.size)
    return total

  def _read(self, body: Mapping[str, Instruction], name: str) -> int:
    """Bytes that a fusion reads of an array."""
    whole = sum(array.size for array in body[name].arrays)
    if body[name].root:  # handed on: nothing says how much of it is used
      return whole
    total = 0
    for user in body.values():
      for place, operand in enumerate(user.operands):
        if operand != name:
          continue
        if user.opcode in _SLICES and place == 0:
          total += user.arrays[0].size
        elif user.opcode in _UPDATES and place == 0:
          total += 0  # it stays where it is
        elif user.opcode == "bitcast" or user.opcode == "reshape":
          total += self._read(body, user.name)
        elif user.opcode == "fusion" and user.called[0] in self._computations:
          inner = self._computations[user.called[0]]
          total += sum(
            self._read(inner, other.name)
            for other in inner.values()
            if other.opcode == "parameter" and int(other.rest) == place
          )
        else:
          return whole
    return min(total, whole)

  def _written(self, body: Mapping[str, Instruction], name: str) -> int:
    """Bytes that a fusion writes of a result: of an update its own only."""
    it = body[name]
    if it.opcode in _UPDATES:
      return body[it.operands[_UPDATES[it.opcode]]].arrays[0].size
    if it.opcode in _VIEWS and it.operands and it.operands[0] in body:
      return self._written(body, it.operands[0])
    if it.opcode == "fusion" and it.called[0] in self._computations:
      inner = self._computations[it.called[0]]
      (root,) = (other for other in inner.values() if other.root)
      if root.opcode != "tuple":
        return self._written(inner, root.name)
    return sum(array.size for array in it.arrays)


def _instruction(name: str, text: str, root: bool) -> Instruction:
  text = re.sub(r"/\*.*?\*/", "", text)
  end = _closing(text, 0) + 1 if text[0] == "(" else text.index(" ")
  kind, _, after = text[end:].strip().partition("(")
  close = _closing("(" + after, 0) - 1
  inside, attributes = after[:close], after[close + 1 :]
  return Instruction(
    name,
    kind,
    tuple(_arrays(text[:end])),
    tuple(_NAME.findall(inside)),
    inside if kind == "parameter" else attributes,
    root,
  )


def _closing(text: str, begin: int) -> int:
  """Where the parenthesis that opens at `begin` closes."""
  depth = 0
  for place in range(begin, len(text)):
    depth += (text[place] == "(") - (text[place] == ")")
    if not depth:
      return place
  return len(text)


def _arrays(text: str) -> Iterator[Array]:
  for dtype, dims, layout in _ARRAY.findall(text):
    count = math.prod(int(dim) for dim in dims.split(",") if dim)
    yield Array(-(-count * _bits(dtype) // 8), "S(" not in layout)


def _bits(dtype: str) -> int:
  """Of one element: the number in the type's name, `bf16` or `f8e4m3`."""
  digits = re.match(r"[a-z]+(\d+)", dtype)
  return 8 if dtype == "pred" else int(digits[1]) if digits else 0


def _hbm(arrays: Sequence[Array]) -> list[int]:
  return [array.size for array in arrays if array.in_hbm]


def _group(attributes: str, devices: int) -> tuple[int, ...]:
  """The devices of the first group that takes part in a transfer."""
  if named := re.search(
    r"replica_groups=mesh\[([^\]]*)\](?:\([^)]*\))? ?\{([^}]*)\}", attributes
  ):
    sizes = {
      axis: int(size) for axis, size in re.findall(r"'(\w+)'=(\d+)", named[1])
    }
    group = [0]
    stride = math.prod(sizes.values())
    for axis, size in sizes.items():
      stride //= size
      if axis in re.findall(r"'(\w+)'", named[2]):
        group = [at + step * stride for at in group for step in range(size)]
    return tuple(group)
  if listed := re.search(r"replica_groups=\{\{([\d,]+)\}", attributes):
    return tuple(map(int, listed[1].split(",")))
  if tiled := re.search(
    r"replica_groups=\[(\d+),(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?",
    attributes,
  ):
    ids = np.arange(devices).reshape([int(d) for d in tiled[3].split(",")])
    if tiled[4]:
      ids = ids.transpose([int(d) for d in tiled[4].split(",")])
    return tuple(ids.reshape(int(tiled[1]), int(tiled[2]))[0].tolist())
  if pairs := re.search(r"source_target_pairs=\{([\d,{}]*)\}", attributes):
    numbers = re.findall(r"\d+", pairs[1])
    return tuple(sorted(set(map(int, numbers))))
  return tuple(range(devices))


def _axis(group: Sequence[int], mesh: Mapping[str, int]) -> str:
  """Along which axes of the mesh the devices of a group differ."""
  names, stride = [], math.prod(mesh.values())
  for name, size in mesh.items():
    stride //= size
    if len({device // stride % size for device in group}) > 1:
      names.append(name)
  return ",".join(names)
