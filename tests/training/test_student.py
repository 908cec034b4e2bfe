"""Fresh models."""

import json

import pytest

from specdec_jax import sharding
from specdec_jax.loading import loader
from specdec_jax.training import student
from tests import tiny


def _fresh(folder, vocab_size, **mesh):
  tiny.save_tokenizer(folder, 32)
  config = folder / "fresh.json"
  fields = {**tiny.CONFIGS["llama"], "vocab_size": vocab_size}
  config.write_text(json.dumps(fields))
  return student.fresh(config, folder, 0, sharding.make_mesh(**mesh))


@pytest.mark.parametrize("mesh", [{}, {"model": 2}])
def test_its_law_is_over_the_tokens_of_its_tokenizer(tmp_path, mesh):
  """As that of a teacher, whatever the config says more."""
  found = _fresh(tmp_path, 41, **mesh)
  assert found.model.network.vocab_size == 32
  written = tmp_path / "written"
  written.mkdir()
  found.write(written, found.model.params)
  loaded = loader.load(str(written), dtype="float32")
  assert loaded.network.vocab_size == 32
  assert loaded.logits([1, 2]) == pytest.approx(
    found.model.logits([1, 2]), abs=1e-5
  )


def test_it_knows_all_tokens_of_its_tokenizer(tmp_path):
  with pytest.raises(ValueError, match=r"vocab_size is 31, .* has 32 tokens"):
    _fresh(tmp_path, 31)
