"""The pages under docs/: their links, their figure, their arithmetic."""

import importlib.util
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
  path
  for pattern in ("*.md", "docs/*.md", "launch/*.md", "checkpoints/*/*.md")
  for path in ROOT.glob(pattern)
)


def _name(path):
  return str(path.relative_to(ROOT))


def headings(path):
  """The anchors of a page, as GitHub makes them."""
  titles = re.findall(r"^#+ (.*)$", path.read_text(), flags=re.MULTILINE)
  plain = (re.sub(r"[^\w\- ]", "", title.lower()) for title in titles)
  return {title.replace(" ", "-") for title in plain}


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_lead_to_files_and_headings(page):
  for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
    if re.match(r"[a-z]+:", link):
      continue
    name, _, anchor = link.partition("#")
    file = page if not name else page.parent / name
    assert file.exists(), link
    assert not anchor or anchor in headings(file), link


def test_every_page_is_linked_from_the_readme():
  readme = (ROOT / "README.md").read_text()
  linked = set(re.findall(r"\]\(((?:docs|colab)/[^)#]+)", readme))
  pages = {_name(page) for page in ROOT.glob("docs/*.md")}
  notebooks = {_name(page) for page in ROOT.glob("colab/*.ipynb")}
  assert pages | notebooks <= linked


def words(file):
  """The texts of an SVG file, in order."""
  tags = ET.parse(file).iter("{http://www.w3.org/2000/svg}text")
  return ["".join(tag.itertext()) for tag in tags]


def test_the_figure_of_the_loop_is_what_the_script_draws(tmp_path):
  # Another matplotlib may place lines differently; words stay words.
  script = ROOT / "docs" / "figures" / "loop.py"
  spec = importlib.util.spec_from_file_location("loop", script)
  loop = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(loop)
  loop.draw(tmp_path / "loop.svg")
  drawn = words(tmp_path / "loop.svg")
  assert "verify" in drawn
  assert drawn == words(script.with_suffix(".svg"))


def test_the_table_of_best_k_follows_the_formula():
  page = (ROOT / "docs" / "choosing.md").read_text()
  acceptances = (0.5, 0.6, 0.7, 0.8, 0.9)
  rows = re.findall(r"^\| (0\.\d+) \| (\d+: .*) \|$", page, flags=re.MULTILINE)
  assert len(rows) == 5
  for cost, cells in rows:
    for a, cell in zip(acceptances, cells.split(" | "), strict=True):
      # Leviathan et al., arXiv 2211.17192, theorem 3.8.
      factor = {
        k: (1 - a ** (k + 1)) / (1 - a) / (k * float(cost) + 1)
        for k in range(1, 60)
      }
      best = max(factor, key=factor.__getitem__)
      assert cell == f"{best}: {factor[best]:.2f}"
