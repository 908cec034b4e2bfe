import pathlib

import pytest

from specdec_jax.plan.hlo import Collective, Module

# In the words of XLA for TPUs: a weight that is fetched ahead, a cache updated
# in place, rows taken from a table, and a loop.
TEXT = (pathlib.Path(__file__).parent / "program.hlo").read_text()
MESH = {"data": 2, "model": 4}


def test_only_what_crosses_to_hbm_counts():
  weight = 256 * 128 * 2  # fetched once, then used from the chip's own memory
  update = 8 * 128 * 2  # of a cache of 64 times that
  rows = 8 * 128 * 2  # of a table of 125 times that
  loop = 8 * 4 * 4
  assert Module(TEXT).traffic() == weight + update + rows + loop


def test_what_the_run_before_fetches_counts_once():
  begin = next(line for line in TEXT.splitlines() if "copy-start(%w)" in line)
  ahead = f"{begin}, cross_program_prefetch_index=0"
  again = begin.replace("%copy-start =", "%copy-start.1 =")
  once = TEXT.replace(begin, ahead)
  twice = TEXT.replace(begin, f"{ahead}\n{again}")
  assert Module(once).traffic() == Module(twice).traffic()
  assert Module(once).traffic() == Module(TEXT).traffic()


def test_transfers_by_axis_and_loop():
  assert set(Module(TEXT).collectives(MESH)) == {
    Collective("all-reduce", "model", 4, 2 * 8 * 128 * 2, 0),
    Collective("all-reduce", "data", 2, 8 * 128 * 2, 0),
    Collective("all-gather", "model", 4, 8 * 32 * 4, 1),
  }


@pytest.mark.parametrize(
  "groups, axis, devices",
  [
    ("mesh['axis_0'=8] {'axis_0'}", "data,model", 8),
    ("mesh['a'=2,'b'=4] {'a'}", "data", 2),
    ("[4,2]<=[2,4]T(1,0)", "data", 2),
    ("{{0,1,2,3},{4,5,6,7}}", "model", 4),
    ("{{0},{1}}", "", 1),
  ],
)
def test_groups_of_devices(groups, axis, devices):
  old = "mesh['data'=2,'model'=4] {'model'}"
  assert old in TEXT
  (found,) = (
    it
    for it in Module(TEXT.replace(old, groups)).collectives(MESH)
    if it.size == 2 * 8 * 128 * 2
  )
  assert (found.axis, found.devices) == (axis, devices)
