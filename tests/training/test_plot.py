"""The picture of a training."""

import errno
import math
import pathlib

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.image import imread

from specdec_jax.training import losses, plot


def _lines(steps, every, *names):
  for step in range(1, steps + 1):
    yield {"step": step, "loss": 2 + 6 * math.exp(-step / 9)}
    if step % every == 0:
      yield {
        "step": step,
        "held_out": {name: 1 / step for name in ("loss", *names)},
      }


def _pixels(image, colour):
  """How many are of this colour."""
  return int((np.abs(image[..., :3] - to_rgb(colour)).max(-1) < 0.02).sum())


@pytest.mark.parametrize(
  "steps, loss",
  [
    (1, losses.CROSS_ENTROPY),
    (300, losses.CROSS_ENTROPY),
    (2, "forward_kl"),
    (300, "total_variation"),
  ],
)
def test_it_has_axes_for_what_was_measured(tmp_path, steps, loss):
  path = tmp_path / "training.png"
  heights = []
  for names in ((), ("acceptance", "tokens_per_target_pass")):
    plot.write(path, _lines(steps, max(steps // 4, 1), *names), loss)
    image = imread(path)
    heights.append(image.shape[0])
    assert _pixels(image, plot._TRAINED) > 10
    assert _pixels(image, plot._HELD_OUT) > 50
  assert heights[1] - heights[0] == pytest.approx(2 * 1.6 * 120)
  assert [entry.name for entry in tmp_path.iterdir()] == ["training.png"]


def test_a_training_has_one(whole):
  assert imread(whole / "training" / "training.png").shape[1] == 8 * 120


def test_a_full_disk_leaves_the_one_before(tmp_path, monkeypatch):
  path = tmp_path / "training.png"
  plot.write(path, _lines(1, 1), losses.CROSS_ENTROPY)
  before = path.read_bytes()

  def full(self, content):
    raise OSError(errno.ENOSPC, "full")

  monkeypatch.setattr(pathlib.Path, "write_bytes", full)
  with pytest.raises(OSError, match="full") as error:
    plot.write(path, _lines(2, 1), losses.CROSS_ENTROPY)
  assert error.value.filename == str(path)
  assert path.read_bytes() == before
