"""The real models give the logits that transformers gives."""

import gc
import os
import pathlib

import numpy as np
import pytest

import specdec_jax as sd

PROMPT = 'def fib(n):\n  """The n-th Fibonacci number."""\n  if n < 2:\n'


@pytest.mark.real
@pytest.mark.parametrize("size", ["0.5b", "1.5b"])
def test_logits_are_those_of_transformers(size):
  torch = pytest.importorskip("torch")
  import transformers

  folder = pathlib.Path(os.environ["SPECDEC_MODELS"], f"qwen2.5-coder-{size}")
  tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
  tokens = tokenizer(PROMPT)["input_ids"]
  theirs = transformers.AutoModelForCausalLM.from_pretrained(
    folder, dtype=torch.float32
  )
  with torch.no_grad():
    expected = theirs(torch.tensor([tokens])).logits[0].numpy()
  # Two copies of the larger one fill 16 GiB.
  del theirs
  gc.collect()
  model = sd.load(folder, dtype="float32")
  assert model.tokenizer.encode(PROMPT) == tokens
  logits = model.logits(tokens)
  known = logits.shape[1]
  np.testing.assert_allclose(logits, expected[:, :known], atol=2e-3, rtol=1e-3)
  np.testing.assert_array_equal(logits.argmax(-1), expected.argmax(-1))
