"""A cache that does not fit is refused, with what would."""

import re

import numpy as np
import pytest

import specdec_jax as sd
from specdec_jax import memory
from specdec_jax.testing import table_model

TARGET = table_model(np.full(4, 0.25), max_length=10**6)


def _generate(rows: int, new_tokens: int) -> None:
  sd.SpeculativeDecoder(TARGET).generate(
    [[1]] * rows, max_new_tokens=new_tokens
  )


def test_refused_before_compiling_with_what_fits(monkeypatch):
  monkeypatch.setattr(memory, "free_bytes", lambda device: 40_000)
  compiled = []
  monkeypatch.setattr(
    "specdec_jax.programs.maker", lambda *a: compiled.append(a)
  )
  with pytest.raises(ValueError) as error:
    _generate(rows=5, new_tokens=2000)
  assert not compiled
  message = str(error.value)
  assert "8 rows of 2048 slots" in message
  assert "but 0.00 GiB are free" in message
  assert re.search(r"fit: 2 rows of this length, or 512 slots", message)


@pytest.mark.parametrize("rows, slots", [(2, 2048), (8, 512)])
def test_what_fits_is_not_refused_again(monkeypatch, rows, slots):
  monkeypatch.setattr(memory, "free_bytes", lambda device: 40_000)
  made = []
  monkeypatch.setattr(
    "specdec_jax.programs.maker", lambda *a: made.append(a) or 1 / 0
  )
  with pytest.raises(ZeroDivisionError):
    _generate(rows, slots - 1)
  assert made


def test_nothing_fits(monkeypatch):
  monkeypatch.setattr(memory, "free_bytes", lambda device: 10)
  with pytest.raises(ValueError, match="what would fit: nothing"):
    _generate(1, 10)


def test_unknown_memory_is_not_refused(monkeypatch):
  monkeypatch.setattr(memory, "free_bytes", lambda device: None)
  _generate(1, 10)


def test_this_machine_has_some_memory():
  free = memory.free_bytes(TARGET.mesh.devices.flat[0])
  assert free is None or free > 2**20


def test_a_container_may_have_less_than_its_machine(monkeypatch, tmp_path):
  (tmp_path / "memory.max").write_text("1000\n")
  (tmp_path / "memory.current").write_text("900\n")
  (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 50\n")
  monkeypatch.setattr(memory, "_CGROUP", tmp_path)
  assert memory.free_bytes(TARGET.mesh.devices.flat[0]) == 150
  (tmp_path / "memory.max").write_text("max\n")
  free = memory.free_bytes(TARGET.mesh.devices.flat[0])
  assert free is None or free > 2**20
