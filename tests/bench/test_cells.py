from specdec_jax.bench import cells


def names(**values):
  lists = {
    "drafters": ["model", "lookup"],
    "rules": ["block", "token"],
    "num_draft_tokens": [2, 4],
    "temperatures": [0.0],
    "batch_sizes": [1],
  }
  return [cell.full_name for cell in cells.grid(**(lists | values))]


def test_rules_are_one_at_temperature_0():
  assert [name.partition(",")[0] for name in names()] == [
    "plain",
    "model K=2",
    "model K=4",
    "lookup K=2",
    "lookup K=4",
  ]


def test_each_setting_begins_with_its_plain_decoding():
  found = names(
    temperatures=[0.0, 1.0], batch_sizes=[1, 4], drafters=["lookup"]
  )
  # Two settings of plain and two K; two of plain and two rules times two K.
  assert len(found) == len(set(found)) == 2 * 3 + 2 * 5
  plain = [name for name in found if name.startswith("plain")]
  assert plain == [
    "plain, temperature 0, batch 1",
    "plain, temperature 0, batch 4",
    "plain, temperature 1, batch 1",
    "plain, temperature 1, batch 4",
  ]


def test_every_cell_finds_its_baseline():
  grid = cells.grid(
    drafters=["model"],
    rules=["gumbel"],
    num_draft_tokens=[3],
    temperatures=[0.0, 0.5],
    batch_sizes=[1, 2],
  )
  for cell in cells.with_peer(grid, cells.TRANSFORMERS):
    assert cell.plain.is_plain
    assert cell.plain.plain == cell.plain


def test_a_peer_has_its_own_rule_and_no_batches():
  grid = cells.grid(
    drafters=["model"],
    rules=["block", "gumbel"],
    num_draft_tokens=[4],
    temperatures=[0.0, 1.0],
    batch_sizes=[1, 8],
  )
  peers = cells.with_peer(grid, "transformers")[len(grid) :]
  assert [cell.full_name for cell in peers] == [
    "transformers plain, temperature 0, batch 1",
    "transformers model K=4, temperature 0, batch 1",
    "transformers plain, temperature 1, batch 1",
    "transformers model K=4 token, temperature 1, batch 1",
  ]
  assert all(cell.plain in peers for cell in peers)
