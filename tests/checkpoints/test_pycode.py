"""The pair that comes with the package, as it is committed."""

import json
import re
import statistics
from pathlib import Path

import numpy as np
import pytest

import specdec_jax as sd
from specdec_jax.loading.tokenizer import Tokenizer
from specdec_jax.training.data import PackedTexts
from specdec_jax.training.evaluate import Examination
from specdec_jax.training.state import Objective

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "specdec_jax"
FOLDER = ROOT / "checkpoints" / "pycode"
NAMES = ("target", "draft")
PROMPTS = [
  json.loads(line)["prompt"]
  for line in (ROOT / "launch" / "demo_prompts.jsonl").open()
]
DEMO = (ROOT / "launch" / "demo.sh").read_text()
NUM_DRAFT_TOKENS = int(re.findall(r"--num_draft_tokens (\d+)", DEMO)[0])
NEW_TOKENS = 96
CODE = '''def fib(n):
    """The n-th Fibonacci number."""
    if n < 2:
        return n
    return fib(n - 1) + fib(n - 2)
'''

each_model = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(scope="module")
def models():
  return {
    name: sd.load(f"embedded:pycode/{name}", dtype="float32") for name in NAMES
  }


@pytest.fixture(scope="module")
def plain(models):
  """What plain decoding makes of each prompt."""
  decoder = sd.SpeculativeDecoder(models["target"])
  return decoder.generate(PROMPTS, max_new_tokens=NEW_TOKENS)


@pytest.fixture(scope="module")
def speculative(models):
  drafter = sd.DraftModel(models["draft"], NUM_DRAFT_TOKENS)
  decoder = sd.SpeculativeDecoder(models["target"], drafter)
  return decoder.generate(PROMPTS, max_new_tokens=NEW_TOKENS)


@each_model
def test_it_reads_with_the_tokenizer_of_the_recipe(models, name):
  recipe = Tokenizer.from_folder(FOLDER / "tokenizer")
  tokenizer = models[name].tokenizer
  assert tokenizer.same_as(recipe) is None
  assert tokenizer.encode(CODE) == recipe.encode(CODE)
  assert models[name].eos_ids == recipe.eos_ids
  assert not tokenizer.has_chat_template


@each_model
def test_logits_are_those_of_transformers(models, name):
  torch = pytest.importorskip("torch")
  import transformers

  theirs = transformers.AutoModelForCausalLM.from_pretrained(
    FOLDER / name, dtype=torch.float32
  )
  read = transformers.AutoTokenizer.from_pretrained(FOLDER / name)
  tokens = read(CODE)["input_ids"]
  assert models[name].tokenizer.encode(CODE) == tokens
  with torch.no_grad():
    expected = theirs(torch.tensor([tokens])).logits[0].numpy()
  logits = models[name].logits(tokens)
  known = logits.shape[1]
  np.testing.assert_allclose(logits, expected[:, :known], atol=1e-3, rtol=0)
  np.testing.assert_array_equal(logits.argmax(-1), expected.argmax(-1))


def test_greedy_text_is_that_of_plain_decoding(plain, speculative):
  assert speculative.texts == plain.texts
  assert speculative.tokens == plain.tokens


def test_the_draft_is_right_often(speculative):
  taus = [stats.tokens_per_target_pass for stats in speculative.row_stats]
  assert statistics.median(taus) >= 3


def test_the_target_reads_python_that_it_has_not_seen(models):
  """This package's own, whose style is none of the corpus's: 1.58 bits."""
  model = models["target"]
  texts = [path.read_text() for path in sorted(SOURCE.glob("*.py"))]
  packed = PackedTexts.of(
    texts, model.tokenizer, model.eos_ids[0], 256, "source"
  )
  objective = Objective(model.network, None, "cross_entropy")
  scores = Examination(packed, rows=32)(objective, model.params, model, None)
  assert scores.bits_per_byte < 1.7


def test_it_is_small():
  files = [
    path
    for name in NAMES
    for path in (FOLDER / name).rglob("*")
    if path.is_file()
  ]
  assert sum(path.stat().st_size for path in files) <= 40e6
  for name in NAMES:
    config = json.loads((FOLDER / name / "config.json").read_text())
    assert config["dtype"] == "bfloat16"


def test_the_first_example_of_the_readme_runs(capsys):
  readme = (ROOT / "README.md").read_text()
  exec(re.findall(r"```python\n(.*?)```", readme, re.DOTALL)[0], {})
  assert capsys.readouterr().out.strip()
