"""Makes the tokenizer of the pycode pair: byte-level BPE for Python source.

    python checkpoints/pycode/make_tokenizer.py --corpus FOLDER --out FOLDER

reads FOLDER/train.jsonl of corpus.py, writes tokenizer.json and
tokenizer_config.json, and says how many bytes a token of heldout.jsonl holds.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import tokenizers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

END = "<|endoftext|>"

# What a token may be part of. GPT-2's pattern leaves the last space of an
# indentation to the word after it; those of newer models cut between the end
# of a line and the indentation of the next. Here a line's end and the
# indentation after it are one piece, so that a token can be both.
PATTERNS = {
  "gpt2": (
    r"'(?:s|t|re|ve|m|ll|d)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
  ),
  # Of Qwen2 (and, but for numbers, of GPT-4 and Llama 3).
  "qwen2": (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
  ),
  "lines": (
    r"\n+ *|[^\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+| +(?! )|\s"
  ),
}


def build(pattern: str) -> Tokenizer:
  """A tokenizer without merges; it reads any text, byte for byte."""
  tokenizer = Tokenizer(models.BPE())
  tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
    [
      pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated"),
      pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
  )
  tokenizer.decoder = decoders.ByteLevel()
  return tokenizer


def train(pattern: str, texts: Iterator[str], size: int) -> Tokenizer:
  """A tokenizer of `size` tokens, `END` the first."""
  tokenizer = build(pattern)
  trainer = trainers.BpeTrainer(
    vocab_size=size,
    special_tokens=[END],
    initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    show_progress=False,
  )
  tokenizer.train_from_iterator(texts, trainer)
  return tokenizer


def read(path: Path) -> Iterator[tuple[str, str]]:
  """Sources and texts of a JSONL file."""
  with path.open(encoding="utf-8") as file:
    for line in file:
      record = json.loads(line)
      yield record["source"], record["text"]


def sample(path: Path, megabytes: float) -> list[str]:
  """Texts of a file of the corpus: as good as random, but always the same."""
  room = megabytes * 1e6
  kept = []
  for _, text in sorted(
    read(path), key=lambda record: hashlib.sha256(record[0].encode()).digest()
  ):
    if room <= 0:
      break
    kept.append(text)
    room -= len(text.encode())
  return kept


def save(tokenizer: Tokenizer, folder: Path) -> None:
  """Writes the files that transformers reads."""
  folder.mkdir(parents=True, exist_ok=True)
  tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
  config = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": END,
    "eos_token": END,
    "pad_token": END,
    "add_prefix_space": False,
    "clean_up_tokenization_spaces": False,
    "model_max_length": 1_000_000_000,
  }
  (folder / "tokenizer_config.json").write_text(
    json.dumps(config, indent=2) + "\n"
  )


def main() -> None:
  """Reads the flags, makes the tokenizer and measures it."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--corpus", type=Path, required=True)
  parser.add_argument("--out", type=Path, required=True)
  parser.add_argument("--size", type=int, default=6144, help="tokens")
  parser.add_argument("--megabytes", type=float, default=25, help="of text")
  parser.add_argument("--pattern", choices=PATTERNS, default="lines")
  flags = parser.parse_args()
  # Threads make the same merges, but leave nothing to others.
  os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
  texts = sample(flags.corpus / "train.jsonl", flags.megabytes)
  tokenizer = train(PATTERNS[flags.pattern], iter(texts), flags.size)
  save(tokenizer, flags.out)
  held = [text for _, text in read(flags.corpus / "heldout.jsonl")]
  size = sum(len(text.encode()) for text in held)
  tokens = sum(len(tokenizer.encode(text).ids) for text in held)
  print(
    f"{flags.pattern}: {tokenizer.get_vocab_size()} tokens, "
    f"{size / tokens:.3f} bytes per token of held-out text"
  )


if __name__ == "__main__":
  main()
