import pytest

from specdec_jax.plan import chips


def test_names_are_read():
  topology = chips.parse("v5e:2x4")
  assert topology.name == "v5e:2x4"
  assert (topology.num_chips, topology.num_devices) == (8, 8)
  assert chips.parse("tpu7x:2x2x1").num_devices == 8  # two to a chip
  assert chips.parse("auto") is None


@pytest.mark.parametrize(
  "text, reason",
  [
    ("v5e:3x3", "v5e has no slice 3x3; it has 1x1, 2x2, 2x4"),
    ("v5p:2x4", "v5p has no slice 2x4; it has 2x2x1"),
    ("v4:2x2x1", "expected auto or CHIP:SHAPE"),
    ("v5e", "v5e:1x1, 2x2"),
    ("v5litepod-8", "expected auto or CHIP:SHAPE"),
    ("", "got ''"),
  ],
)
def test_what_does_not_exist_is_told_with_what_does(text, reason):
  with pytest.raises(ValueError, match=reason.replace("(", r"\(")):
    chips.parse(text)


@pytest.mark.parametrize("chip", chips.CHIPS, ids=lambda chip: chip.name)
def test_figures_belong_together(chip):
  """A slip of a power of ten would be seen."""
  # Operations a byte: public peaks make 166 to 561 of it.
  assert 150 < chip.bf16_flops / chip.hbm_bandwidth < 600
  assert 0.95 < chip.usable_bytes / chip.hbm_bytes < 1.01
  # Seconds to read all of the memory once.
  assert 0.015 < chip.hbm_bytes / chip.hbm_bandwidth < 0.04
  assert 5 < chip.hbm_bandwidth / chip.link_bandwidth < 40


def test_slices_grow():
  for chip in chips.CHIPS:
    counts = [chips.Topology(chip, shape).num_chips for shape in chip.slices]
    assert counts == sorted(set(counts))
  larger = [it.shape for it in chips.parse("v5e:8x8").larger()]
  assert larger == ["8x16", "16x16"]


def test_the_smallest_comes_first():
  every = chips.by_size()
  assert every[0].name == "v5e:1x1"
  sizes = [it.num_chips * it.chip.hbm_bytes for it in every]
  assert sizes == sorted(sizes)
  assert len(every) == sum(len(chip.slices) for chip in chips.CHIPS)


def test_devices_share_a_chip():
  topology = chips.parse("tpu7x:2x2x1")
  assert topology.hbm_bandwidth == 3690e9
  assert topology.flops == 2307e12 / 2


def test_a_missing_compiler_says_how_to_get_it(monkeypatch):
  monkeypatch.setattr(chips.importlib.util, "find_spec", lambda name: None)
  with pytest.raises(ValueError, match=r"pip install 'specdec_jax\[aot\]'"):
    chips.parse("v5e:1x1").describe()
