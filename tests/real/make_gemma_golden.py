"""Remakes gemma_golden.npz: logits of transformers' own reading of the file.

  SPECDEC_MODELS=... python -m tests.real.make_gemma_golden

Needs torch, accelerate and minutes.
"""

import os
import pathlib

import numpy as np

TEXTS = (
  "The capital of France is Paris, and the capital of Italy is",
  # Longer than the window of 512 tokens.
  "\n".join(f"Line {i}: {i} times {i} is {i * i}." for i in range(40)),
)
GOLDEN = pathlib.Path(__file__).with_name("gemma_golden.npz")
STRIDE = 997  # of the vocabulary, which would make a large file


def main() -> None:
  import torch
  import transformers

  folder = os.path.join(os.environ["SPECDEC_MODELS"], "gguf")
  file = {"gguf_file": "gemma-3-270m.gguf"}
  tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **file)
  model = transformers.AutoModelForCausalLM.from_pretrained(
    folder, **file, dtype=torch.float32
  ).eval()
  golden = {}
  for i, text in enumerate(TEXTS):
    ids = tokenizer(text)["input_ids"]
    with torch.no_grad():
      logits_TV = model(torch.tensor([ids])).logits[0].numpy()
    golden[f"ids{i}"] = np.array(ids, np.int32)
    golden[f"logits{i}"] = logits_TV[-8:, ::STRIDE]
    golden[f"best{i}"] = logits_TV[-8:].argmax(-1).astype(np.int32)
  np.savez_compressed(GOLDEN, **golden)


if __name__ == "__main__":
  main()
