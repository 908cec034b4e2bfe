"""transformers beside ours. Needs torch."""

import pytest

from specdec_jax.bench import cells, peer
from specdec_jax.bench.ways import Limits
from specdec_jax.loading import load
from tests.cli.tiny_checkpoint import save_checkpoint

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
  folder = tmp_path_factory.mktemp("peer")
  return [
    save_checkpoint(folder / name, noise=noise)
    for name, noise in (("target", 0.0), ("draft", 0.02))
  ]


def test_greedy_text_is_ours(folders):
  limits = Limits(12, ignore_eos=True)
  theirs = peer.Transformers(
    target=folders[0],
    draft=folders[1],
    dtype="float32",
    limits=limits,
    max_ngram=3,
  )
  grid = cells.grid(
    drafters=["model", "lookup"],
    rules=["block"],
    num_draft_tokens=[3],
    temperatures=[0.0, 1.0],
    batch_sizes=[1],
  )
  target = load(folders[0], dtype="float32")
  prompt = [3, 1, 4, 1, 5]
  text = list(prompt)
  for _ in range(12):
    text.append(int(target.logits(text, count=1)[-1].argmax()))
  for cell in cells.with_peer(grid, "transformers")[len(grid) :]:
    run = theirs.way(cell).run([prompt], [0])
    if not cell.temperature:
      assert run.tokens == [text[5:]]
    assert len(run.tokens[0]) == 12
    assert run.compile > 0
    assert run.decode > 0 and run.first_token > 0
    if cell.is_plain:
      assert (run.row_passes, run.steps, run.decode_tokens) == (12, 11, 11)
    else:
      assert run.row_passes <= 12
      assert run.decode_tokens < 12


def test_a_folder_that_is_no_model(tmp_path):
  with pytest.raises(ValueError, match="transformers cannot load"):
    peer.Transformers(
      target=tmp_path,
      draft=None,
      dtype="float32",
      limits=Limits(4),
      max_ngram=3,
    )
