"""The file of metrics, through kills and full disks."""

import errno
import resource

import pytest

from specdec_jax.training.metrics import MetricsFile


@pytest.fixture
def path(tmp_path):
  return tmp_path / "metrics.jsonl"


def _write(path, begin, steps):
  with MetricsFile(path, begin) as file:
    for step in steps:
      file.write(step, {"loss": step / 3})
    return list(file.lines())


def test_what_comes_after_the_step_is_forgotten(path):
  whole = _write(path, 0, range(1, 8))
  assert whole == [{"step": i, "loss": i / 3} for i in range(1, 8)]
  assert _write(path, 3, []) == whole[:3]
  assert _write(path, 3, range(4, 8)) == whole


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_line_that_a_kill_cut_off_is_left_out(path, cut):
  whole = _write(path, 0, range(1, 4))
  path.write_bytes(path.read_bytes()[:-cut])
  assert _write(path, 3, []) == whole[:2]


def test_lines_are_there_as_soon_as_they_are_written(path):
  with MetricsFile(path, 0) as file:
    file.write(1, {"loss": 1.0})
    assert path.read_text() == '{"step": 1, "loss": 1.0}\n'


@pytest.mark.parametrize(
  "line",
  [
    "",
    "x",
    "[1]",
    '{"loss": 1}',
    '{"step": null, "loss": 1}',
    '{"step": 1}',
    "\0\0",
  ],
)
def test_a_foreign_line_is_named(path, line):
  path.write_text(f'{{"step": 1, "loss": 2}}\n{line}\n')
  with pytest.raises(ValueError, match=r"metrics\.jsonl, line 2: expected"):
    MetricsFile(path, 1)


def test_a_full_disk_is_named_and_costs_one_line(path):
  """Python ignores SIGXFSZ: a write past the limit fails as on a full disk."""
  before = resource.getrlimit(resource.RLIMIT_FSIZE)
  with pytest.raises(OSError) as error, MetricsFile(path, 0) as file:
    file.write(1, {"loss": 1.0})
    limit = path.stat().st_size + 5
    try:
      resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
      file.write(2, {"loss": 1.0})
    finally:
      resource.setrlimit(resource.RLIMIT_FSIZE, before)
  assert (error.value.errno, error.value.filename) == (errno.EFBIG, str(path))
  assert path.read_text().endswith('\n{"ste')
  assert _write(path, 2, []) == [{"step": 1, "loss": 1.0}]


def test_a_full_disk_leaves_the_old_file(path):
  whole = _write(path, 0, range(1, 400))
  before = resource.getrlimit(resource.RLIMIT_FSIZE)
  with pytest.raises(OSError) as error:
    try:
      resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
      MetricsFile(path, 399)
    finally:
      resource.setrlimit(resource.RLIMIT_FSIZE, before)
  assert error.value.filename == str(path)
  assert [entry.name for entry in path.parent.iterdir()] == [path.name]
  assert _write(path, 399, []) == whole
