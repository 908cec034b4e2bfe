"""The page of a benchmark, and its plots."""

import base64
import dataclasses
import re

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.image import imread

from specdec_jax.report import bench_page, charts, write_pngs
from specdec_jax.report.palette import DARK, LIGHT
from specdec_jax.report.plots import Plot
from tests.report import made
from tests.report.test_markup import HOSTILE
from tests.report.test_tokens import Tree


@pytest.fixture
def undrawn(monkeypatch):
  """Leaves out the pictures, which take a second each."""
  monkeypatch.setattr(Plot, "_svg", lambda self, narrow: "<svg/>")


def test_it_holds_every_cell_and_plot(undrawn):
  summary = made.summary(temperatures=(0.0, 0.8))
  tree = Tree(bench_page(summary))
  text = " ".join(it[2] for it in tree.found if it[0] == "table")
  for cell in summary.cells:
    assert cell.cell.name in text
  assert len([it for it in tree.found if it[0] == "picture"]) == 2 * 4 + 1


def test_measured_and_predicted_stand_side_by_side():
  (model, *_) = charts.speed(made.summary().cells).rows
  cell = made.summary().cells[1].total
  assert model == (
    "model K=2",
    f"{cell.total_speedup:.2f}x",
    f"{cell.speedup.low:.2f} to {cell.speedup.high:.2f}",
    f"{1.1 * cell.total_speedup:.2f}x",
    "+10%",
    f"{cell.tokens_per_pass:.2f}",
  )


def test_acceptance_is_of_the_largest_k():
  rows = charts.acceptance(made.summary((1.0,)).cells).rows
  assert [row[0] for row in rows] == [
    "model K=4 token",
    "model K=4 block",
    "lookup K=4 token",
    "lookup K=4 block",
  ]
  assert rows[0][1:] == ("50%", "25%", "12%", "6%")


def test_time_is_split():
  rows = charts.time(made.summary().cells).rows
  assert rows[0] == ("plain", "50.00", "0.00", "40.00", "1.00", "+22.0%")
  assert rows[2] == ("model K=4", "90.00", "40.00", "40.00", "1.00", "+11.1%")


def test_there_is_a_picture_for_each_screen():
  one = charts.speed(made.summary().cells).html()
  media = re.findall(r'media="([^"]*)"', one)
  assert len(set(media)) == 3
  files = re.findall(r"data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)", one)
  narrow_dark, narrow, dark, wide = (
    base64.b64decode(it).decode().lower() for it in files
  )
  blue, sky = LIGHT.draft.lower(), DARK.draft.lower()
  for light_one, dark_one in ((narrow, narrow_dark), (wide, dark)):
    assert blue in light_one and sky not in light_one
    assert sky in dark_one and blue not in dark_one
    assert LIGHT.ink.lower() not in dark_one
  assert _width(narrow) < 0.5 * _width(wide)


def _width(svg):
  return float(re.search(r'width="([\d.]+)pt', svg)[1])


def test_hostile_names_add_no_element(undrawn):
  hostile = bench_page(made.summary(tasks=(HOSTILE, "b"), note=HOSTILE))
  assert Tree(hostile).names == Tree(bench_page(made.summary())).names
  assert "alert(1)&lt;" in hostile


@pytest.mark.parametrize(
  "change",
  [
    {"plain": False},  # interrupted before the baseline
    {"tasks": ("one",)},
  ],
  ids=str,
)
def test_what_was_not_measured_is_left_out(undrawn, change):
  bench_page(made.summary(**change))


def test_an_engine_that_tells_little(undrawn):
  summary = made.summary()
  cells = [
    dataclasses.replace(
      it,
      time=None,
      prediction=None,
      identity=None,
      peak_bytes=None,
      total=dataclasses.replace(
        it.total, drafted_per_position=(), accepted_per_position=()
      ),
    )
    for it in summary.cells
  ]
  peer = [
    dataclasses.replace(
      it, cell=dataclasses.replace(it.cell, engine="transformers")
    )
    for it in cells
  ]
  page = bench_page(
    dataclasses.replace(summary, cells=(*cells, *peer), curves=())
  )
  assert len([it for it in Tree(page).found if it[0] == "picture"]) == 2
  assert "transformers model K=4" in page


def test_pngs(tmp_path):
  folder = tmp_path / "new" / "plots"
  before = dict(matplotlib.rcParams)
  paths = write_pngs(folder, made.summary())
  assert dict(matplotlib.rcParams) == before
  names = ("speed", "acceptance", "tasks", "time")
  setting = "temperature-0-batch-1"
  assert paths == [
    *(folder / f"{setting}-{name}.png" for name in names),
    folder / "verify.png",
  ]
  assert sorted(folder.iterdir()) == sorted(paths)
  for path in paths:
    image = imread(path)
    blue = np.abs(image[..., :3] - to_rgb(LIGHT.draft)).max(-1) < 0.02
    assert image.shape[1] == 1520
    assert blue.sum() > 100
