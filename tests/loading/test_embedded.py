"""Where the pair that comes with the package lies."""

import pytest

import specdec_jax as sd
from specdec_jax.loading import embedded
from tests.cli.tiny_checkpoint import save_checkpoint


@pytest.fixture
def roots(tmp_path, monkeypatch):
  """The places of a wheel and of a checkout, both empty."""
  found = tmp_path / "wheel", tmp_path / "checkout"
  monkeypatch.setattr(embedded, "_ROOTS", found)
  return found


def test_a_checkout_has_it_beside_the_package():
  wheel, checkout = embedded._ROOTS
  assert (wheel.parent / "py.typed").is_file()
  assert (checkout / "pycode" / "tokenizer" / "tokenizer.json").is_file()


def test_what_was_installed_goes_first(roots):
  for root in reversed(roots):
    folder = root / "pycode" / "draft"
    folder.mkdir(parents=True)
    assert embedded.folder(embedded.DRAFT) == folder


def test_missing_files_are_told_with_the_places(roots):
  with pytest.raises(ValueError, match=r"^embedded:") as error:
    sd.load("embedded:pycode/target")
  assert all(str(root) in str(error.value) for root in roots)


@pytest.mark.parametrize("name", ["", "pycode", "pycode/target/", "../x"])
def test_other_names_are_refused(name):
  with pytest.raises(ValueError, match="expected embedded:pycode/target or"):
    sd.load(f"embedded:{name}")


def test_a_name_cannot_be_taken_for_a_folder(roots, monkeypatch, tmp_path):
  monkeypatch.chdir(tmp_path)
  (tmp_path / "embedded:pycode" / "target").mkdir(parents=True)
  with pytest.raises(ValueError, match="install the package again"):
    sd.load("embedded:pycode/target")


def test_it_loads(roots):
  (roots[1] / "pycode").mkdir(parents=True)
  save_checkpoint(roots[1] / "pycode" / "target")
  model = sd.load("embedded:pycode/target", dtype="float32")
  assert model.name == "embedded:pycode/target"
  assert model.tokenizer.encode("a")
