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


def test_generate_writes_the_same_on_a_mesh(generate, prompts):
  flags = (f"--prompts_file={prompts}", "--batch_size=2", "--max_new_tokens=12")
  one, many = (
    generate.json(*flags, *mesh) for mesh in ((), ("--mesh=data:2,model:2",))
  )
  assert [line["tokens"] for line in many] == [line["tokens"] for line in one]


def test_a_mesh_is_checked_before_models_are_read(generate):
  reason = generate.refused(
    "--prompt=a", "--mesh=model:16", "--target=/no/model"
  )
  assert reason.startswith("--mesh=model:16: a 1x16 mesh needs 16 devices")
