"""Several devices train like one."""

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from specdec_jax.training import state
from tests.training import tiny_runs


@pytest.fixture
def placed(monkeypatch):
  """Where the rows of a step and the weights lie."""
  found = {}
  make_step = state.make_step

  def watched(*args):
    step = make_step(*args)

    def run(train_state, teacher, row_BT, weight_BT):
      found["rows"] = row_BT.sharding.spec
      found["weights"] = {
        name: value.sharding.spec for name, value in train_state.params.items()
      }
      return step(train_state, teacher, row_BT, weight_BT)

    return run

  monkeypatch.setattr(state, "make_step", watched)
  return found


MLP = "layers.0.mlp.up.weight"


@pytest.mark.parametrize(
  "mesh, flags, one",
  [
    ("data:2", (), "whole"),
    ("data:1,model:2", (), "whole"),
    ("data:2,model:2", tiny_runs.LOADED, "loaded"),
  ],
)
def test_the_loss_curve_is_that_of_one_device(
  request, train, placed, mesh, flags, one
):
  alone = request.getfixturevalue(one)
  code, *_ = train(f"--mesh={mesh}", *flags)
  assert code == 0
  np.testing.assert_allclose(
    tiny_runs.losses(train.output), tiny_runs.losses(alone), atol=1e-5, rtol=0
  )
  ones, others = (
    [line["held_out"]["loss"] for line in tiny_runs.held_out(folder)]
    for folder in (train.output, alone)
  )
  np.testing.assert_allclose(ones, others, atol=1e-5, rtol=0)
  rows = "data" if "data:2" in mesh else None
  assert placed["rows"] == PartitionSpec(rows)
  assert ("model0" in placed["weights"][MLP]) == ("model:2" in mesh)
  # It goes on with other devices.
  code, out, _ = train(*flags)
  assert code == 0 and out.startswith(f"goes on from step {tiny_runs.STEPS}\n")


@pytest.mark.parametrize(
  "flags, reason",
  [
    (("--mesh=data:3",), "expected a multiple of 3, 1 (accumulate) parts"),
    (("--mesh=data:4", "--accumulate=2"), "expected a multiple of 8, 2 (acc"),
  ],
)
def test_rows_divide_over_devices(train, flags, reason):
  code, _, err = train(*flags)
  assert code == 2 and err.count("\n") == 1
  assert f"batch_size: {reason}" in err
  assert not train.output.exists()


def test_there_are_devices_to_test_with():
  assert len(jax.devices()) == 8
