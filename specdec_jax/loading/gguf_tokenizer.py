"""The tokenizer in a GGUF file, built anew.

The file has the tokens and what joins them, but not how text is cut before:
it names that, and the names are known here.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from tokenizers import (
  decoders,
  models,
  normalizers,
  pre_tokenizers,
  processors,
)

from specdec_jax.loading.tokenizer import Tokenizer

_KEY = "tokenizer.ggml."
_NORMAL, _CONTROL, _USER_DEFINED = 1, 3, 4
_SPACE = "▁"  # what SentencePiece writes for a space
_SPECIAL = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
# What ends a turn or a text in the formats of chats.
_ENDS = {
  "<|endoftext|>",
  "<|im_end|>",
  "<|end_of_text|>",
  "<|eot_id|>",
  "<|eom_id|>",
  "<end_of_turn>",
}
# How text is cut before bytes are joined, by the name in `pre`: as the
# tokenizer.json of the first model of each kind says, one cut after the other.
_CONTRACTIONS = r"'s|'t|'re|'ve|'m|'ll|'d"
_WORDS = (
  rf"(?i:{_CONTRACTIONS})|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|%s| "
  r"?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CUTS = {
  "gpt-2": [
    rf"{_CONTRACTIONS}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|\s+(?!\S)|"
    r"\s+"
  ],
  "qwen2": [_WORDS % r"\p{N}"],
  "llama-bpe": [_WORDS % r"\p{N}{1,3}"],
  "deepseek-coder": [
    r"[\r\n]",
    r"\s?\p{L}+",
    r"\s?\p{P}+",
    "[一-龥ࠀ-一가-퟿]+",
    r"\p{N}",
  ],
}


def special_ids(metadata: Mapping[str, Any]) -> dict[str, int]:
  """`bos_token_id` and the like, as far as the header has them."""
  ids = {
    f"{ours}_token_id": metadata.get(f"{_KEY}{theirs}_token_id")
    for ours, theirs in _SPECIAL.items()
    if ours != "unk"
  }
  size = len(metadata.get(f"{_KEY}tokens", ()))
  return {k: i for k, i in ids.items() if type(i) is int and 0 <= i < size}


def ends(metadata: Mapping[str, Any]) -> list[int]:
  """The tokens that end a sequence, the file's own first."""
  tokens = metadata.get(f"{_KEY}tokens", ())
  types = metadata.get(f"{_KEY}token_type", ())
  own = (
    metadata.get(f"{_KEY}{name}_token_id") for name in ("eos", "eot", "eom")
  )
  known = [i for i in own if type(i) is int and 0 <= i < len(tokens)]
  named = [
    i
    for i, (token, kind) in enumerate(zip(tokens, types, strict=False))
    if kind == _CONTROL and token in _ENDS
  ]
  return list(dict.fromkeys(known + named))


def read(path: Path, metadata: Mapping[str, Any]) -> Tokenizer | None:
  """Builds the tokenizer of a file.

  Args:
    path: the file, for messages.
    metadata: its header.

  Returns:
    None if it has none.

  Raises:
    ValueError: it is broken, or of a kind that is not supported.
  """
  if f"{_KEY}tokens" not in metadata:
    return None
  try:
    vocab = _Vocabulary(metadata)
    model = metadata.get(f"{_KEY}model")
    if model == "gpt2":
      backend = _byte_level(metadata, vocab)
    elif model == "llama":
      backend = _sentence_piece(metadata, vocab)
    else:
      raise ValueError(
        f"kind {model!r} is not supported; supported: gpt2, llama"
      )
    backend.add_special_tokens(vocab.added(_CONTROL))
    backend.add_tokens(vocab.added(_USER_DEFINED))
    _add_bos(backend, metadata, vocab)
    names = {
      f"{ours}_token": vocab.special(theirs)
      for ours, theirs in _SPECIAL.items()
    }
    return Tokenizer.from_backend(
      backend, names, metadata.get("tokenizer.chat_template")
    )
  except Exception as error:  # its parsers raise whatever they like
    raise ValueError(f"cannot read the tokenizer in {path}: {error}") from error


class _Vocabulary:
  """Tokens, by id, and what is known of them."""

  def __init__(self, metadata: Mapping[str, Any]):
    tokens: Sequence[str] = metadata[f"{_KEY}tokens"]
    if metadata.get(f"{_KEY}model") == "llama":
      # Tokens that users define have spaces in this file, others do not.
      tokens = [token.replace(" ", _SPACE) for token in tokens]
    types = metadata.get(f"{_KEY}token_type", [_NORMAL] * len(tokens))
    scores = metadata.get(f"{_KEY}scores", np.zeros(len(tokens)))
    if not len(tokens) == len(types) == len(scores):
      raise ValueError(
        f"{len(tokens)} tokens, but {len(types)} types and {len(scores)} scores"
      )
    self._metadata = metadata
    self._tokens = tokens
    self.ids = {token: i for i, token in enumerate(tokens)}
    if len(self.ids) < len(tokens):
      raise ValueError("two of its tokens are the same")
    self.types = types
    self.scores = scores

  def special(self, name: str) -> str | None:
    """The token that has this part, if there is one."""
    i = self._metadata.get(f"{_KEY}{name}_token_id")
    return None if i is None else self._tokens[i]

  def added(self, kind: int) -> list[tokenizers.AddedToken]:
    """Tokens of a type, which are found before text is cut.

    Runs of spaces are not: they are joined like any other token.
    """
    return [
      tokenizers.AddedToken(token, special=kind == _CONTROL, normalized=False)
      for token, i in self.ids.items()
      if self.types[i] == kind and _SPACE not in token
    ]


def _byte_level(
  metadata: Mapping[str, Any], vocab: _Vocabulary
) -> tokenizers.Tokenizer:
  """BPE over bytes, each of which has a character (GPT-2)."""
  pre = metadata.get(f"{_KEY}pre")
  if pre not in _CUTS:
    raise ValueError(
      f"its pre-tokenizer {pre!r} is not known; known: {', '.join(_CUTS)}"
    )
  merges = [tuple(m.split(" ")) for m in metadata.get(f"{_KEY}merges", ())]
  # Llama 3 takes a word that is a token as it is.
  backend = tokenizers.Tokenizer(
    models.BPE(vocab.ids, merges, ignore_merges=pre == "llama-bpe")
  )
  cuts = [
    pre_tokenizers.Split(tokenizers.Regex(cut), "isolated")
    for cut in _CUTS[pre]
  ]
  if pre == "qwen2":
    backend.normalizer = normalizers.NFC()
  bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
  backend.pre_tokenizer = pre_tokenizers.Sequence([*cuts, bytes_])
  backend.decoder = decoders.ByteLevel()
  return backend


def _sentence_piece(
  metadata: Mapping[str, Any], vocab: _Vocabulary
) -> tokenizers.Tokenizer:
  """BPE of SentencePiece: characters, or else bytes (Llama 2, Gemma)."""
  backend = tokenizers.Tokenizer(
    models.BPE(
      vocab.ids,
      _merges(vocab),
      unk_token=vocab.special("unknown"),
      fuse_unk=True,
      byte_fallback=True,
    )
  )
  spaces: list[normalizers.Normalizer] = [normalizers.Replace(" ", _SPACE)]
  decoding = [
    decoders.Replace(_SPACE, " "),
    decoders.ByteFallback(),
    decoders.Fuse(),
  ]
  if metadata.get(f"{_KEY}add_space_prefix", True):
    spaces.insert(0, normalizers.Prepend(_SPACE))
    decoding.append(decoders.Strip(" ", 1, 0))
  backend.normalizer = normalizers.Sequence(spaces)
  backend.decoder = decoders.Sequence(decoding)
  return backend


def _merges(vocab: _Vocabulary) -> list[tuple[str, str]]:
  """The pairs that make a token, in the order in which they are joined.

  SentencePiece joins the pair whose token has the largest score; tokens that
  users define come before all others. This is what transformers derives too.
  """
  kinds = (_NORMAL, _USER_DEFINED)
  parts = {t: i for t, i in vocab.ids.items() if vocab.types[i] in kinds}
  user_defined = np.asarray(vocab.types) == _USER_DEFINED
  rank = np.argsort(
    np.lexsort((-np.asarray(vocab.scores) * ~user_defined, ~user_defined))
  )
  pairs = [
    (rank[i], cut, token)
    for token, i in parts.items()
    for cut in range(1, len(token))
    if token[:cut] in parts and token[cut:] in parts
  ]
  return [(token[:cut], token[cut:]) for _, cut, token in sorted(pairs)]


def _add_bos(
  backend: tokenizers.Tokenizer, metadata: Mapping[str, Any], vocab: _Vocabulary
) -> None:
  """Lets texts begin with a token, where the model wants that."""
  # Files that do not say it: of Llama's kinds the model does.
  llama = metadata.get(f"{_KEY}model") == "llama"
  default = llama or metadata.get(f"{_KEY}pre") == "llama-bpe"
  bos = vocab.special("bos")
  if bos and metadata.get(f"{_KEY}add_bos_token", default):
    backend.post_processor = processors.TemplateProcessing(
      single=[bos, "$A"], special_tokens=[(bos, vocab.ids[bos])]
    )
