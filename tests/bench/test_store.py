import json

import pytest

from specdec_jax.bench import store
from specdec_jax.bench.records import Difference
from specdec_jax.bench.store import Store
from tests.bench.examples import MODEL, PLAIN, record

HEADER = {"note": "", "settings": {"rounds": 2}, "pair": {"target": "a"}}
UNITS = [
  [record(PLAIN), record(MODEL, differences=(Difference("p", 1, 0.5, False),))],
  [record(PLAIN, "q", passes=None), record(MODEL, "q", peak_bytes=None)],
]


@pytest.fixture
def folder(tmp_path):
  """Results of two units."""
  folder = tmp_path / "results"
  made = Store(folder, HEADER)
  for number, records in enumerate(UNITS):
    made.append(number, records)
  return folder


def test_records_come_back_as_they_were(folder):
  again = Store(folder, HEADER)
  assert again.units == {0, 1}
  assert again.records == [*UNITS[0], *UNITS[1]]
  assert store.load(folder) == (dict(again.header), again.records)


@pytest.mark.parametrize("cut", [1, 40, 700])
def test_what_was_cut_off_is_dropped_and_written_again(folder, cut):
  path = folder / "records.jsonl"
  whole = path.read_bytes()
  path.write_bytes(whole[:-cut])
  again = Store(folder, HEADER)
  assert again.units == {0}
  again.append(1, UNITS[1])
  assert path.read_bytes() == whole


def test_other_settings_are_named(folder):
  with pytest.raises(ValueError) as error:
    Store(folder, HEADER | {"settings": {"rounds": 3}})
  assert "settings.rounds was 2, is 3" in str(error.value)
  assert "give the same command, or another folder" in str(error.value)


def test_a_note_may_change(folder):
  assert Store(folder, HEADER | {"note": "other"}).header["note"] == ""


def test_another_version_says_so(folder):
  path = folder / "header.json"
  header = json.loads(path.read_text())
  path.write_text(json.dumps(header | {"format": 99}))
  for open_it in (lambda: Store(folder, HEADER), lambda: store.load(folder)):
    with pytest.raises(ValueError, match="results of format 99, but this"):
      open_it()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format"'])
def test_a_broken_header_is_refused(folder, text):
  (folder / "header.json").write_text(text)
  with pytest.raises(ValueError, match="not a header of results"):
    Store(folder, HEADER)


def test_a_foreign_record_names_its_line(folder):
  with open(folder / "records.jsonl", "a") as file:
    file.write('{"prompt": "a"}\n')
  with pytest.raises(ValueError, match="line 5: not a record"):
    Store(folder, HEADER)


def test_a_folder_of_something_else_is_left_alone(tmp_path):
  (tmp_path / "thesis.txt").write_text("x")
  with pytest.raises(ValueError, match="found other files"):
    Store(tmp_path, HEADER)
  with pytest.raises(ValueError, match="expected a folder, got a file"):
    Store(tmp_path / "thesis.txt", HEADER)


def test_without_a_folder_records_stay_in_memory():
  made = Store(None, HEADER)
  made.append(0, UNITS[0])
  assert made.records == UNITS[0]
