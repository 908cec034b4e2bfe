"""The notebooks: whole, as a reader expects them, and true from top to bottom.

`python colab/run.py` runs them and keeps what they print.
"""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "colab").glob("*.ipynb"))
REPOSITORY = "specdec-jax/specdec_jax"
PNG = "image/png"
_MOST_BYTES = 300_000
_ABSOLUTE = re.compile(r"(?<![\w.:/])/(?:home|root|tmp|usr|Users|opt|content)/")

each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells(path, kind="code"):
  """The cells of a kind, each with its source as one string."""
  notebook = json.loads(path.read_text())
  return [
    {**cell, "source": "".join(cell["source"])}
    for cell in notebook["cells"]
    if cell["cell_type"] == kind
  ]


def outputs(path):
  return [output for cell in cells(path) for output in cell["outputs"]]


def test_all_four_are_here():
  names = [path.stem for path in NOTEBOOKS]
  assert names == ["lossless", "quickstart", "tpu", "train_a_draft"]


@each
def test_cells_have_names_that_stay(path):
  notebook = json.loads(path.read_text())
  assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
  names = [cell["id"] for cell in notebook["cells"]]
  assert len(set(names)) == len(names)


@each
def test_the_badge_opens_this_notebook(path):
  first = cells(path, "markdown")[0]["source"]
  badge = "https://colab.research.google.com/assets/colab-badge.svg"
  place = f"github/{REPOSITORY}/blob/main/colab/{path.name}"
  link = f"https://colab.research.google.com/{place}"
  assert f"[![Open in Colab]({badge})]({link})" in first


@each
def test_links_into_the_repository_lead_to_files(path):
  text = "".join(cell["source"] for cell in cells(path, "markdown"))
  links = re.findall(
    rf"\(https://github.com/{REPOSITORY}/blob/main/([^)#]+)", text
  )
  assert links
  assert [link for link in links if not (ROOT / link).is_file()] == []


@each
def test_one_cell_installs_and_only_where_nothing_is_installed(path):
  (cell,) = (cell for cell in cells(path) if "pip install" in cell["source"])
  assert f"git+https://github.com/{REPOSITORY}" in cell["source"]
  condition = 'if importlib.util.find_spec("specdec_jax") is None:\n  %pip'
  assert condition in cell["source"]
  assert cell["outputs"] == []


@each
def test_outputs_of_one_run_are_kept(path):
  counts = [cell["execution_count"] for cell in cells(path)]
  assert counts == list(range(1, len(counts) + 1))
  kinds = {output["output_type"] for output in outputs(path)}
  assert "stream" in kinds and "display_data" in kinds
  assert "error" not in kinds
  names = {output.get("name", "stdout") for output in outputs(path)}
  assert names == {"stdout"}, "warnings: see what they say, and mend it"


@each
def test_versions_are_printed(path):
  printed = "".join("".join(it.get("text", "")) for it in outputs(path))
  assert re.search(r"^specdec_jax \d+\.\d+", printed, flags=re.MULTILINE)
  assert re.search(r"^jax \d+\.\d+", printed, flags=re.MULTILINE)


@each
def test_what_is_shown_is_asserted(path):
  assert sum(cell["source"].count("assert ") for cell in cells(path)) >= 3


@each
def test_files_are_small_and_name_no_place(path):
  assert path.stat().st_size < _MOST_BYTES
  # Pictures, in base64, have slashes too.
  shown = [
    json.dumps({k: v for k, v in it.get("data", {}).items() if k != PNG})
    for it in outputs(path)
  ]
  texts = ["".join(it.get("text", "")) for it in outputs(path)]
  sources = [it["source"] for it in cells(path) + cells(path, "markdown")]
  assert not _ABSOLUTE.search("\n".join(shown + texts + sources))


@pytest.mark.notebook
@each
def test_runs_from_top_to_bottom(path):
  from colab import run  # needs the extra

  assert run.execute(path).cells  # raises where a cell fails
