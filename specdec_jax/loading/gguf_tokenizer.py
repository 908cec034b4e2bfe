"""The tokenizer in a GGUF file, built anew.

The file has the tokens and what joins them, but not how text is cut before:
it names that, and the names are known here.
"""

import numpy as np
import tokenizers
from tokenizers import (
  decoders,
  models,
  normalizers,
  pre_tokenizers,
  processors,
)

from specdec_jax.loading.gguf_file import GgufFile
from specdec_jax.loading.tokenizer import Tokenizer

_KEY = "tokenizer.ggml."
_NORMAL, _CONTROL, _USER_DEFINED = 1, 3, 4
_SPACE = "▁"  # what SentencePiece writes for a space
_SPECIAL = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
_LONGEST = 1000  # each way to cut a token in two is looked at
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


def special_ids(file: GgufFile) -> dict[str, int]:
  """`bos_token_id` and the like, as far as the header has them."""
  size = len(file.get(f"{_KEY}tokens", list, []))
  ids = {
    f"{ours}_token_id": file.get(f"{_KEY}{theirs}_token_id", int, -1)
    for ours, theirs in _SPECIAL.items()
    if ours != "unk"
  }
  return {name: i for name, i in ids.items() if 0 <= i < size}


def ends(file: GgufFile) -> list[int]:
  """The tokens that end a sequence, the file's own first."""
  tokens = file.get(f"{_KEY}tokens", list, [])
  types = file.get(f"{_KEY}token_type", np.ndarray, np.empty(0))
  own = [
    file.get(f"{_KEY}{name}_token_id", int, -1)
    for name in ("eos", "eot", "eom")
  ]
  named = [
    i
    for i, (token, kind) in enumerate(zip(tokens, types, strict=False))
    if kind == _CONTROL and token in _ENDS
  ]
  return [i for i in dict.fromkeys(own + named) if 0 <= i < len(tokens)]


def read(file: GgufFile, name: str) -> Tokenizer | None:
  """Builds the tokenizer of a file.

  Args:
    file: the file.
    name: what messages call it.

  Returns:
    None if it has none.

  Raises:
    ValueError: it is broken, or of a kind that is not supported.
  """
  tokens = file.get(f"{_KEY}tokens", list)
  if tokens is None:
    return None
  try:
    kind = file.get(f"{_KEY}model", str)
    if kind not in _BACKENDS:
      raise ValueError(
        f"its kind {kind!r} is not supported; supported: {', '.join(_BACKENDS)}"
      )
    vocab = _Vocabulary(file, tokens, kind)
    backend = _BACKENDS[kind](file, vocab)
    backend.add_special_tokens(vocab.added(_CONTROL))
    backend.add_tokens(vocab.added(_USER_DEFINED))
    special = {
      f"{ours}_token": vocab.special(theirs)
      for ours, theirs in _SPECIAL.items()
    }
    bos = special["bos_token"]
    # Files that do not say it: of Llama's kinds the model does.
    llama = kind == "llama" or file.get(f"{_KEY}pre", str) == "llama-bpe"
    if bos and file.get(f"{_KEY}add_bos_token", bool, llama):
      backend.post_processor = processors.TemplateProcessing(
        single=[bos, "$A"], special_tokens=[(bos, vocab.ids[bos])]
      )
    template = file.get("tokenizer.chat_template", str)
    return Tokenizer.from_backend(backend, special, template)
  except Exception as error:  # its parsers raise whatever they like
    raise ValueError(f"cannot read the tokenizer in {name}: {error}") from error


class _Vocabulary:
  """Tokens, and what the file knows of them.

  Attributes:
    ids: of the tokens.
    types: by id.
    scores: by id.
  """

  def __init__(self, file: GgufFile, tokens: list[str], kind: str):
    if kind == "llama":
      # Tokens that users define have spaces in this file, others do not.
      tokens = [token.replace(" ", _SPACE) for token in tokens]
    size = len(tokens)
    self._file = file
    self._tokens = tokens
    self.ids = {token: i for i, token in enumerate(tokens)}
    self.types = file.get(f"{_KEY}token_type", np.ndarray, np.ones(size, int))
    self.scores = file.get(f"{_KEY}scores", np.ndarray, np.zeros(size))
    if not size == len(self.types) == len(self.scores):
      raise ValueError(
        f"it has {size} tokens, but {len(self.types)} types and "
        f"{len(self.scores)} scores"
      )
    if len(self.ids) < size:
      raise ValueError("two of its tokens are the same")

  def special(self, name: str) -> str | None:
    """The token that has this part, if there is one."""
    i = self._file.get(f"{_KEY}{name}_token_id", int)
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


def _byte_level(file: GgufFile, vocab: _Vocabulary) -> tokenizers.Tokenizer:
  """BPE over bytes, each of which has a character (GPT-2)."""
  pre = file.get(f"{_KEY}pre", str)
  if pre not in _CUTS:
    raise ValueError(
      f"its pre-tokenizer {pre!r} is not known; known: {', '.join(_CUTS)}"
    )
  merges = [
    tuple(merge.split(" ")) for merge in file.get(f"{_KEY}merges", list, [])
  ]
  # Llama 3 takes a word that is a token as it is.
  backend = tokenizers.Tokenizer(
    models.BPE(vocab.ids, merges, ignore_merges=pre == "llama-bpe")
  )
  if pre == "qwen2":
    backend.normalizer = normalizers.NFC()
  cuts = [
    pre_tokenizers.Split(tokenizers.Regex(cut), "isolated")
    for cut in _CUTS[pre]
  ]
  to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
  backend.pre_tokenizer = pre_tokenizers.Sequence([*cuts, to_bytes])
  backend.decoder = decoders.ByteLevel()
  return backend


def _sentence_piece(file: GgufFile, vocab: _Vocabulary) -> tokenizers.Tokenizer:
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
  if file.get(f"{_KEY}add_space_prefix", bool, True):
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
  user_defined = vocab.types == _USER_DEFINED
  order = np.lexsort((-vocab.scores * ~user_defined, ~user_defined))
  rank = np.argsort(order).tolist()
  usable = np.isin(vocab.types, (_NORMAL, _USER_DEFINED))
  parts = {token: i for token, i in vocab.ids.items() if usable[i]}
  if max(map(len, parts), default=0) > _LONGEST:
    raise ValueError(f"it has a token of more than {_LONGEST} characters")
  pairs = [
    (rank[i], cut, token)
    for token, i in parts.items()
    for cut in range(1, len(token))
    if token[:cut] in parts and token[cut:] in parts
  ]
  return [(token[:cut], token[cut:]) for _, cut, token in sorted(pairs)]


_BACKENDS = {"gpt2": _byte_level, "llama": _sentence_piece}
