"""GGUF files: their tensors under Hugging Face's names, layouts and values."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from specdec_jax.loading import gguf_tokenizer
from specdec_jax.loading.checkpoint import Checkpoint, Tensor
from specdec_jax.loading.gguf_file import GgufFile
from specdec_jax.loading.source import Source

_EMBED = "token_embd.weight"
_HEAD = "output.weight"
_NAMES = {
  _EMBED: "model.embed_tokens.weight",
  "output_norm.weight": "model.norm.weight",
  _HEAD: "lm_head.weight",
}
_LAYER_NAMES = {
  "attn_norm": "input_layernorm",
  "attn_q": "self_attn.q_proj",
  "attn_k": "self_attn.k_proj",
  "attn_v": "self_attn.v_proj",
  "attn_output": "self_attn.o_proj",
  "attn_q_norm": "self_attn.q_norm",
  "attn_k_norm": "self_attn.k_norm",
  "ffn_norm": "post_attention_layernorm",
  "ffn_gate": "mlp.gate_proj",
  "ffn_up": "mlp.up_proj",
  "ffn_down": "mlp.down_proj",
}
_GEMMA_LAYER_NAMES = {
  **_LAYER_NAMES,
  "post_attention_norm": "post_attention_layernorm",
  "ffn_norm": "pre_feedforward_layernorm",
  "post_ffw_norm": "post_feedforward_layernorm",
}
# Llama 3.x keeps no numbers of its RoPE but the factors that follow from them.
# All releases since 3.1 have these; the largest factor is the one left.
_ROPE_FACTORS = "rope_freqs.weight"
_LOW, _HIGH, _ORIGINAL = 1.0, 4.0, 8192


@dataclasses.dataclass(frozen=True)
class _Architecture:
  """How GGUF differs from Hugging Face.

  Attributes:
    name: what Hugging Face calls the architecture.
    model_type: what it calls the kind of config.json.
    layer_names: GGUF's part of a layer -> Hugging Face's.
    pairs: whether the two dimensions that RoPE rotates together are neighbours
      in the rows of query and key, and not half a head apart.
    norm_offset: what was added to the scale of every norm.
  """

  name: str
  model_type: str
  layer_names: Mapping[str, str] = dataclasses.field(
    default_factory=lambda: _LAYER_NAMES
  )
  pairs: bool = False
  norm_offset: int = 0


_ARCHITECTURES = {
  "llama": _Architecture("LlamaForCausalLM", "llama", pairs=True),
  "qwen2": _Architecture("Qwen2ForCausalLM", "qwen2"),
  "qwen3": _Architecture("Qwen3ForCausalLM", "qwen3"),
  "gemma3": _Architecture(
    "Gemma3ForCausalLM", "gemma3_text", _GEMMA_LAYER_NAMES, norm_offset=1
  ),
}


def open_file(path: Path, name: str) -> Source:
  """A model in a GGUF file.

  Raises:
    ValueError: the file is broken, or its architecture not supported.
  """
  try:
    return _open(path, name)
  except ValueError as error:
    raise ValueError(f"{path}: {error}") from error


def _open(path: Path, name: str) -> Source:
  file = GgufFile(path)
  kind = file.get("general.architecture", str)
  if kind not in _ARCHITECTURES:
    raise ValueError(
      f"architecture {kind!r} is not supported; supported: "
      f"{', '.join(sorted(_ARCHITECTURES))}"
    )
  architecture = _ARCHITECTURES[kind]
  fields = _fields(file, kind, architecture)
  special = gguf_tokenizer.special_ids(file)
  return Source(
    name=name,
    fields=fields | special,
    generation=special | {"eos_token_id": gguf_tokenizer.ends(file)},
    weights=GgufTensors(file, architecture, fields),
    read_tokenizer=lambda: gguf_tokenizer.read(file, name),
  )


class GgufTensors(Checkpoint):
  """The tensors of a GGUF file, dequantised as they are read."""

  # Those that tests have seen; `gguf` can dequantise others.
  readable = (
    *("BF16", "F16", "F32", "Q4_0", "Q5_0", "Q8_0"),
    *("Q4_K", "Q5_K", "Q6_K"),
  )

  def __init__(
    self,
    file: GgufFile,
    architecture: _Architecture,
    fields: Mapping[str, Any],
  ):
    """Takes an open file, and its config.json."""
    self._file = file
    self._offset = architecture.norm_offset
    self._heads = {}
    if architecture.pairs:
      self._heads = {
        "q_proj": fields["num_attention_heads"],
        "k_proj": fields["num_key_value_heads"],
      }
    self._names = {
      _hf_name(name, architecture): name
      for name in file.entries
      if name != _ROPE_FACTORS  # they are in the config
    }
    self.tensors = {
      name: Tensor(file.entries[theirs].shape, file.entries[theirs].type)
      for name, theirs in self._names.items()
    }

  def _read(
    self, name: str, index: tuple[slice, ...], dtype: str
  ) -> np.ndarray:
    theirs, shape = self._names[name], self.tensors[name].shape
    order = np.arange(shape[0])
    if heads := self._heads.get(name.split(".")[-2]):
      order = order.reshape(heads, -1, 2).swapaxes(1, 2).ravel()
    if len(shape) == 2:
      rows, columns = index
      return self._file.read(theirs, order[rows], columns, dtype)
    vector = self._file.read_vector(theirs)
    if name.endswith("norm.weight"):
      vector -= self._offset
    return vector[order[index[0]]].astype(dtype)


def _hf_name(name: str, architecture: _Architecture) -> str:
  """Hugging Face's name of a tensor; its own if it is not known."""
  match name.split("."):
    case "blk", layer, part, suffix if part in architecture.layer_names:
      return f"model.layers.{layer}.{architecture.layer_names[part]}.{suffix}"
  return _NAMES.get(name, name)


def _fields(
  file: GgufFile, kind: str, architecture: _Architecture
) -> dict[str, Any]:
  """What config.json would say.

  Raises:
    ValueError: the header lacks what is needed.
  """

  def get(key: str, type_: type = int, default: Any = None) -> Any:
    value = file.get(f"{kind}.{key}", type_, default)
    # A float32 in as few digits as it takes.
    return float(str(np.float32(value))) if type(value) is float else value

  needed = {
    "hidden_size": get("embedding_length"),
    "intermediate_size": get("feed_forward_length"),
    "num_hidden_layers": get("block_count"),
    "num_attention_heads": get("attention.head_count"),
    "max_position_embeddings": get("context_length"),
    "rms_norm_eps": get("attention.layer_norm_rms_epsilon", float),
  }
  if kind == "gemma3":
    needed["sliding_window"] = get("attention.sliding_window")
  missing = [name for name, value in needed.items() if value is None]
  if missing or _EMBED not in file.entries:
    raise ValueError(
      f"the header does not say {', '.join(missing)}"
      if missing
      else f"there is no tensor {_EMBED}"
    )
  fields = needed | {
    "architectures": [architecture.name],
    "model_type": architecture.model_type,
    "vocab_size": file.entries[_EMBED].shape[0],
    "num_key_value_heads": get(
      "attention.head_count_kv", default=needed["num_attention_heads"]
    ),
    "rope_theta": get("rope.freq_base", float, 10000.0),
    "tie_word_embeddings": _HEAD not in file.entries,
  }
  head_dim = get("attention.key_length", default=get("rope.dimension_count"))
  if head_dim is not None:
    fields["head_dim"] = head_dim
  if kind == "llama":
    fields["attention_bias"] = "blk.0.attn_q.bias" in file.entries
    fields["mlp_bias"] = "blk.0.ffn_up.bias" in file.entries
  if kind == "gemma3":
    fields["rope_local_base_freq"] = get("rope.freq_base_swa", float, 10000.0)
    fields["query_pre_attn_scalar"] = head_dim
    # Every sixth layer sees everything, unless the header says otherwise.
    pattern = get("attention.sliding_window_pattern", default=6)
    fields["sliding_window_pattern"] = pattern
    if needed["num_hidden_layers"] == 62:  # 27B; the header does not say it
      heads = max(1, needed["num_attention_heads"])
      fields["query_pre_attn_scalar"] = needed["hidden_size"] // heads
  if _ROPE_FACTORS in file.entries:
    fields["rope_scaling"] = _llama3(file, fields["rope_theta"])
  elif (scaling := get("rope.scaling.type", str, "none")) != "none":
    original = get("rope.scaling.original_context_length")
    fields["rope_scaling"] = {
      "rope_type": scaling,
      "factor": get("rope.scaling.factor", float),
      "original_max_position_embeddings": original,
    }
  return fields


def _llama3(file: GgufFile, theta: float) -> dict[str, Any]:
  """The scaling of RoPE that gives the file's factors.

  Raises:
    ValueError: it is not that of Llama 3.
  """
  factors = np.zeros(1)
  if file.entries[_ROPE_FACTORS].type == "F32":
    factors = file.read_vector(_ROPE_FACTORS)
  factor = float(factors.max())
  with np.errstate(all="ignore"):  # of numbers that make no sense
    waves = 2 * np.pi * theta ** (np.arange(len(factors)) / len(factors))
    ramp = np.clip((_ORIGINAL / waves - _LOW) / (_HIGH - _LOW), 0, 1)
    expected = 1 / ((1 - ramp) / factor + ramp)
  if not np.allclose(factors, expected, rtol=1e-3):
    raise ValueError(
      f"the factors in {_ROPE_FACTORS} are not those of Llama 3; "
      "other ways to scale RoPE are not supported"
    )
  return {
    "rope_type": "llama3",
    "factor": factor,
    "low_freq_factor": _LOW,
    "high_freq_factor": _HIGH,
    "original_max_position_embeddings": _ORIGINAL,
  }
