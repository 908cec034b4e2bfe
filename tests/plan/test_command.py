"""What `specdec plan` says, without a compiler."""

import json

import pytest

from specdec_jax import sharding
from specdec_jax.cli import plan as command
from specdec_jax.cli import plan_report
from specdec_jax.loading import hf
from specdec_jax.plan import chips, passes, planner
from specdec_jax.plan.hlo import Collective
from specdec_jax.plan.roofline import Cost
from tests.plan.conftest import CONFIGS

PAIR = [
  f"--target={CONFIGS / 'qwen3-8b'}",
  f"--draft={CONFIGS / 'qwen3-0.6b'}",
]


class Device:
  platform = "tpu"


@pytest.fixture
def compiled(monkeypatch):
  """Stands for the compiler: figures near those that it gives for v5e:2x4."""
  reduces = Collective("all-reduce", "model", 8, 65536, 0, 73)

  def compile_pair(pair):
    program = passes.Program(
      arguments=3 * 2**30,
      donated=2**30,
      temporaries=2**26,
      code=2**26,
      collectives=(reduces,),
      seconds=1.0,
    )
    costs = [
      ("plain", 1, Cost(2.6e9, 17.6e9, (reduces,))),
      ("verify", 5, Cost(2.7e9, 88e9, (reduces,))),
      ("verify", 11, Cost(2.8e9, 194e9, (reduces,))),
      ("draft", 1, Cost(0.7e9, 2.2e9, (reduces,))),
    ]
    return program, costs

  monkeypatch.setattr(planner, "_compile", compile_pair)
  import jax

  monkeypatch.setattr(
    chips.Topology,
    "describe",
    lambda self: (jax.devices() * self.num_devices)[: self.num_devices],
  )
  real = planner.sharding.make_mesh
  # A mesh refuses to have a device twice.
  monkeypatch.setattr(
    planner.sharding,
    "make_mesh",
    lambda data, model, devices=None: (
      sharding.abstract_mesh(data, model) if devices else real(data, model)
    ),
  )


def test_tables(plan, compiled):
  code, out, err = plan(*PAIR, "--topology=v5e:2x4")
  assert code == 0
  assert "on v5e:2x4, mesh data:1,model:8" in out
  assert "it fits, with " in out
  assert "73 all-reduce over model" in out
  assert "0.95" in out and "K=10" in out
  assert out.count("*") == 20 + 1  # one K for each acceptance, and the legend
  assert "2211.17192" in out
  assert all(line.startswith("note: ") for line in err.splitlines())
  assert "extrapolated" in err


def test_json_and_plot(plan, compiled, tmp_path):
  picture = tmp_path / "speedup.png"
  code, out, _ = plan(
    *PAIR, "--topology=v5e:2x4", "--json", f"--plot={picture}"
  )
  assert code == 0
  found = json.loads(out)
  assert found["fits"] is True
  assert found["remedies"] is None
  assert found["mesh"] == {"data": 1, "model": 8}
  assert found["memory"]["total"] == sum(found["memory"]["bytes"].values())
  assert [it["pass"] for it in found["passes"]] == [
    "plain",
    "verify",
    "verify",
    "draft",
  ]
  assert found["passes"][0]["bound_by"] == "HBM"
  row = found["speedups"][-1]
  assert row["acceptance"] == 0.95
  best = row["by_num_draft_tokens"][str(row["best_num_draft_tokens"])]
  assert best["speedup"] == max(
    it["speedup"] for it in row["by_num_draft_tokens"].values()
  )
  assert picture.read_bytes().startswith(b"\x89PNG")


def test_what_does_not_fit(plan, compiled):
  code, out, _ = plan(*PAIR, "--topology=v5e:1x1")
  assert code == command.DOES_NOT_FIT
  assert "it does not fit: " in out
  assert "more chips       v5e:2x2, mesh data:1,model:4" in out
  assert "shorter context  none" in out
  assert "--quantize=int8  " in out
  assert "speedup" not in out
  code, out, _ = plan(*PAIR, "--topology=v5e:1x1", "--json")
  found = json.loads(out)
  assert (code, found["fits"], found["speedups"]) == (1, False, [])
  assert found["remedies"]["topology"] == "v5e:2x2"
  assert found["memory"]["excess"] > 0


def test_what_the_compiler_refuses_for_another_reason(
  plan, compiled, monkeypatch
):
  def refuse(pair):
    raise passes.DoesNotFit("RESOURCE_EXHAUSTED: out of vmem")

  monkeypatch.setattr(planner, "_compile", refuse)
  code, _, err = plan(*PAIR, "--topology=v5e:2x4")
  assert code == 2
  assert "v5e:2x4: the compiler refuses it: RESOURCE_EXHAUSTED: out" in err


def test_rows_that_fill_up_a_batch_write_nothing(plan, compiled):
  flags = "--topology=v5e:2x4", "--json"
  figures = [
    json.loads(plan(*PAIR, *flags, f"--batch_size={rows}")[1])
    for rows in (5, 8)
  ]
  assert [it["batch_size"] for it in figures] == [5, 8]
  few, all_rows = (it["plain_tokens_per_second"] for it in figures)
  assert few == pytest.approx(all_rows * 5 / 8)


def refused(plan, *argv):
  """The one line that tells why."""
  code, out, err = plan(*argv)
  assert (code, out) == (2, "")
  assert err.startswith("specdec plan: error: ")
  assert err.count("\n") == 1
  return err


@pytest.mark.parametrize(
  "argv, reason",
  [
    ([], "--target: expected a model, got none"),
    (PAIR[:1], "--draft: expected a model, got none"),
    ([*PAIR, "--topology=v5e:2x3"], "--topology: v5e:2x3: v5e has no slice"),
    ([*PAIR, "--topology=v9"], "--topology: expected auto or CHIP:SHAPE"),
    ([*PAIR, "--mesh=model:x"], "--mesh: expected data:N"),
    (
      [*PAIR, "--topology=v5e:2x4", "--mesh=data:2,model:2"],
      "a mesh of 2x2 is for 4 devices, but v5e:2x4 has 8",
    ),
    ([*PAIR, "--batch_size=0"], "batch_size"),
    ([*PAIR, "--num_draft_tokens=0"], "num_draft_tokens"),
    ([*PAIR, "--batch_size=99999999"], "batch_size"),
    ([*PAIR, "--plot=/no/such/folder/a.png"], "--plot: no such folder"),
    ([*PAIR, "--plot=a.txt"], "--plot: expected a PNG file"),
    (["--target=./none", PAIR[1]], "--target: no such folder: ./none"),
  ],
)
def test_bad_flags(plan, argv, reason):
  assert reason in refused(plan, *argv)


def test_bad_configs(plan, configs, tmp_path):
  moe = configs("moe", architectures=["Qwen3MoeForCausalLM"])
  assert "--draft: config.json: architectures" in refused(
    plan, PAIR[0], f"--draft={moe}"
  )
  quantised = configs("int4", quantization_config={"quant_method": "awq"})
  assert "is quantised" in refused(plan, f"--target={quantised}", PAIR[1])
  (tmp_path / "a.json").write_text("[")
  assert "is not JSON" in refused(
    plan, f"--target={tmp_path / 'a.json'}", PAIR[1]
  )


def test_a_missing_compiler(plan, monkeypatch):
  monkeypatch.setattr(chips.importlib.util, "find_spec", lambda name: None)
  told = refused(plan, *PAIR, "--topology=v5e:2x4")
  assert "pip install 'specdec_jax[aot]'" in told


def test_of_a_hub_id_only_the_config_is_downloaded(plan, compiled, monkeypatch):
  seen = []

  def download(name, files):
    seen.append((name, files))
    return CONFIGS / name.split("/")[1].lower()

  monkeypatch.setattr(hf, "download", download)
  code, _, _ = plan(
    "--target=Qwen/Qwen3-8B",
    "--draft=Qwen/Qwen3-0.6B",
    "--topology=v5e:2x4",
  )
  assert code == 0
  assert seen == [
    ("Qwen/Qwen3-8B", ("config.json",)),
    ("Qwen/Qwen3-0.6B", ("config.json",)),
  ]


def test_notes(plan, compiled, configs):
  odd = configs(
    "odd",
    "qwen3-0.6b",
    vocab_size=151900,
    num_attention_heads=14,
    num_key_value_heads=2,
    max_position_embeddings=2048,
  )
  _, _, err = plan(PAIR[0], f"--draft={odd}", "--topology=v5e:2x4")
  assert "151936 and 151900 tokens; taken for both: 151900" in err
  assert "the draft's 14 query heads do not divide over 8 devices" in err
  assert "the draft's 2 key-value heads do not divide" in err
  assert "4000 tokens are more than the draft was made for, 2048" in err


def test_help(plan):
  code, out, _ = plan("--help")
  assert code == 0
  assert all(f"--{name}" in out for name in command.FLAGS)
  assert max(map(len, out.splitlines())) < 80
  assert "v5e:  1x1, 2x2" in out
  assert plan_report.RESERVED_SHARE == 0.05
