"""Makes golden.npz: logits of transformers for the tiny models.

Needs torch: `python -m tests.models.make_golden` in the project's root. The
weights come from `random_params`, so only tokens and logits are kept.
"""

import pathlib
import tempfile

import numpy as np

from tests import tiny

FILE = pathlib.Path(__file__).parent / "golden.npz"
SEED = 7


def tokens_BT() -> np.ndarray:
  """Two rows, long enough for every branch of rope scaling."""
  return np.random.default_rng(0).integers(0, 32, (2, 12))


def transformers_logits(name: str, tokens: np.ndarray) -> np.ndarray:
  """What transformers computes for a tiny model, float32 `[B, T, V]`."""
  import torch
  import transformers

  with tempfile.TemporaryDirectory() as folder:
    tiny.save(pathlib.Path(folder), name, SEED)
    model = transformers.AutoModelForCausalLM.from_pretrained(
      folder, dtype=torch.float32, attn_implementation="eager"
    )
  with torch.no_grad():
    return model(torch.tensor(tokens)).logits.numpy()


def main() -> None:
  tokens = tokens_BT()
  logits = {
    name: transformers_logits(name, tokens).astype(np.float32)
    for name in tiny.CONFIGS
  }
  np.savez_compressed(FILE, tokens=tokens, **logits)


if __name__ == "__main__":
  main()
