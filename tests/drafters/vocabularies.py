"""Small tokenizers of the two kinds that there are."""

import tokenizers
import transformers

from specdec_jax.loading.tokenizer import Tokenizer

BOS, EOS = "<s>", "</s>"


def byte_level(*tokens: str) -> Tokenizer:
  """Like GPT-2's: bytes and merges, with Ġ for a space; EOS comes first."""
  return _tokenizer([EOS, *tokens], tokenizers.decoders.ByteLevel())


def byte_fallback(*tokens: str) -> Tokenizer:
  """Like Llama 2's: pieces with ▁ for a space; BOS begins every text."""
  decoder = tokenizers.decoders.Sequence(
    [
      tokenizers.decoders.Replace("▁", " "),
      tokenizers.decoders.ByteFallback(),
      tokenizers.decoders.Fuse(),
    ]
  )
  return _tokenizer([BOS, EOS, *tokens], decoder)


def _tokenizer(
  tokens: list[str], decoder: tokenizers.decoders.Decoder
) -> Tokenizer:
  vocab = {token: i for i, token in enumerate(tokens)}
  tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, []))
  tokenizer.decoder = decoder
  special = [token for token in (BOS, EOS) if token in vocab]
  tokenizer.add_special_tokens(special)
  if BOS in vocab:
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
      f"{BOS} $A", special_tokens=[(BOS, vocab[BOS])]
    )
  return Tokenizer(
    transformers.PreTrainedTokenizerFast(
      tokenizer_object=tokenizer, eos_token=EOS
    )
  )
