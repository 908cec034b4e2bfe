import pytest

from specdec_jax import sharding
from specdec_jax.cli.mesh_flag import parse_mesh


@pytest.mark.parametrize(
  "text, shape",
  [
    (None, (1, 1)),
    ("data:2", (2, 1)),
    ("model:4", (1, 4)),
    ("data:2,model:2", (2, 2)),
    ("model:2,data:1", (1, 2)),
  ],
)
def test_meshes(text, shape):
  sizes = dict(zip(("data", "model"), shape, strict=True))
  assert sharding.sizes(parse_mesh(text)) == sizes


@pytest.mark.parametrize(
  "text",
  [
    "",
    "2",
    "data",
    "data:",
    "data:0",
    "data:-1",
    "data:1.5",
    "data=2",
    "rows:2",
    "data:2,",
    "data:2 model:2",
    "data:1,data:2",
    "data:9999999",
  ],
)
def test_what_is_no_mesh(text):
  with pytest.raises(ValueError) as error:
    parse_mesh(text)
  assert str(error.value) == (
    "--mesh: expected data:N, model:N or both with a comma, for example "
    f"data:2,model:4, got {text!r}"
  )


def test_too_few_devices():
  with pytest.raises(ValueError) as error:
    parse_mesh("data:4,model:4")
  assert str(error.value) == (
    "--mesh=data:4,model:4: a 4x4 mesh needs 16 devices, 8 found"
  )
