"""Tiny models of every family, and checkpoints of them in folders."""

import json
from pathlib import Path

import numpy as np
import safetensors.numpy
import tokenizers

from specdec_jax.models.config import from_hf
from specdec_jax.models.transformer import (
  Params,
  TransformerNetwork,
  random_params,
)

_BASE = {
  "vocab_size": 32,
  "num_hidden_layers": 2,
  "hidden_size": 16,
  "intermediate_size": 24,
  "num_attention_heads": 4,
  "num_key_value_heads": 2,
  "head_dim": 4,
  "hidden_act": "silu",
  "rms_norm_eps": 1e-5,
  "max_position_embeddings": 64,
  "tie_word_embeddings": False,
}
_LLAMA = {
  **_BASE,
  "architectures": ["LlamaForCausalLM"],
  "model_type": "llama",
  "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
}
_QWEN2 = {
  **_BASE,
  "architectures": ["Qwen2ForCausalLM"],
  "model_type": "qwen2",
  "rope_theta": 1000.0,
  "use_sliding_window": False,
}
_QWEN3 = {
  **_BASE,
  "architectures": ["Qwen3ForCausalLM"],
  "model_type": "qwen3",
  "head_dim": 8,
  "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0},
}

# As config.json says them, in the spellings of transformers 4 and 5.
CONFIGS = {
  "llama": _LLAMA,
  "llama-tied": {**_LLAMA, "tie_word_embeddings": True},
  "llama-biases": {**_LLAMA, "attention_bias": True, "mlp_bias": True},
  "llama-linear": {
    **_LLAMA,
    "rope_parameters": {
      "rope_type": "linear",
      "rope_theta": 500.0,
      "factor": 3.0,
    },
  },
  "llama3": {
    **_LLAMA,
    "head_dim": 16,
    "rope_parameters": {
      "rope_type": "llama3",
      "rope_theta": 500.0,
      "factor": 4.0,
      "low_freq_factor": 1.0,
      "high_freq_factor": 4.0,
      "original_max_position_embeddings": 32,
    },
  },
  "qwen2": _QWEN2,
  "qwen2-tied": {**_QWEN2, "tie_word_embeddings": True},
  "qwen3": _QWEN3,
  "qwen3-tied-biases": {
    **_QWEN3,
    "tie_word_embeddings": True,
    "attention_bias": True,
  },
}

EOS = "<eos>"


def network(name: str, dtype: str = "float32") -> TransformerNetwork:
  """The network of one of `CONFIGS`."""
  return TransformerNetwork(from_hf(CONFIGS[name]), dtype)


def tensors(net: TransformerNetwork, params: Params) -> dict[str, np.ndarray]:
  """The weights under the checkpoint's names."""
  family = net.config.family
  return {
    family.tensor_name(path): np.asarray(value)
    for path, value in params.items()
  }


def save(folder: Path, name: str, seed: int = 0) -> Params:
  """Saves a random model: config.json and model.safetensors."""
  net = network(name)
  params = random_params(net, seed)
  (folder / "config.json").write_text(json.dumps(CONFIGS[name]))
  safetensors.numpy.save_file(
    tensors(net, params), folder / "model.safetensors", {"format": "pt"}
  )
  return params


def save_tokenizer(folder: Path, size: int, **config) -> None:
  """Saves a tokenizer of words: w0, w1, .. and the end of sequence, last."""
  vocab = {f"w{i}": i for i in range(size - 1)} | {EOS: size - 1}
  tokenizer = tokenizers.Tokenizer(
    tokenizers.models.WordLevel(vocab, unk_token="w0")
  )
  tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
  tokenizer.add_special_tokens([EOS])
  tokenizer.save(str(folder / "tokenizer.json"))
  fields = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": EOS}
  (folder / "tokenizer_config.json").write_text(json.dumps(fields | config))
