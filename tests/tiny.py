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

_MISTRAL = {
  **_BASE,
  "architectures": ["MistralForCausalLM"],
  "model_type": "mistral",
  "rope_theta": 1000.0,
  "sliding_window": 5,
}
_GEMMA = {
  **_BASE,
  "hidden_activation": "gelu_pytorch_tanh",
  "head_dim": 8,
  "query_pre_attn_scalar": 5,
  "tie_word_embeddings": True,
  "rope_theta": 1000.0,
  "sliding_window": 4,
}
_GEMMA2 = {
  **_GEMMA,
  "architectures": ["Gemma2ForCausalLM"],
  "model_type": "gemma2",
  "attn_logit_softcapping": 2.0,
  "final_logit_softcapping": 3.0,
}
_GEMMA3 = {
  **_GEMMA,
  "architectures": ["Gemma3ForCausalLM"],
  "model_type": "gemma3_text",
  "rope_local_base_freq": 20.0,
  "sliding_window_pattern": 2,
}
_PHI3 = {
  **_BASE,
  "architectures": ["Phi3ForCausalLM"],
  "model_type": "phi3",
  "pad_token_id": 0,
  "rope_theta": 100.0,
  "sliding_window": 6,
}
_GPT2 = {
  "architectures": ["GPT2LMHeadModel"],
  "model_type": "gpt2",
  "vocab_size": 32,
  "n_layer": 2,
  "n_head": 4,
  "n_embd": 16,
  "n_positions": 64,
}


def _yarn(**fields) -> dict:
  """Of a context so short that its ramp covers several pairs."""
  return {
    "rope_type": "yarn",
    "rope_theta": 500.0,
    "factor": 4.0,
    "original_max_position_embeddings": 32,
    **fields,
  }


# As config.json says them, in the spellings of transformers 4 and 5. Windows
# are shorter than the texts of the tests.
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
  "llama-dynamic": {
    **_LLAMA,
    "rope_theta": 50.0,
    "rope_parameters": {"type": "dynamic", "factor": 3.0},
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
  "llama-yarn": {
    **_LLAMA,
    "head_dim": 16,
    "rope_parameters": _yarn(beta_fast=1, beta_slow=0.25),
  },
  "llama-yarn-mscale": {
    **_LLAMA,
    "head_dim": 16,
    "rope_parameters": _yarn(mscale=2.0, mscale_all_dim=0.5, truncate=False),
  },
  "mistral": _MISTRAL,
  "mistral-everything-tied": {
    **_MISTRAL,
    "sliding_window": None,
    "tie_word_embeddings": True,
  },
  "qwen2": _QWEN2,
  "qwen2-tied": {**_QWEN2, "tie_word_embeddings": True},
  "qwen2-yarn": {
    **_QWEN2,
    "rope_scaling": {"type": "yarn", "factor": 4.0, "attention_factor": 1.5},
  },
  "qwen2-window": {
    **_QWEN2,
    "use_sliding_window": True,
    "sliding_window": 4,
    "max_window_layers": 1,
  },
  "qwen3": _QWEN3,
  "qwen3-tied-biases": {
    **_QWEN3,
    "tie_word_embeddings": True,
    "attention_bias": True,
  },
  "qwen3-window": {
    **_QWEN3,
    "use_sliding_window": True,
    "sliding_window": 3,
    "layer_types": ["sliding_attention", "full_attention"],
  },
  "gemma2": _GEMMA2,
  "gemma2-untied-uncapped": {
    **_GEMMA2,
    "tie_word_embeddings": False,
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
  },
  "gemma3": {**_GEMMA3, "rope_scaling": {"rope_type": "linear", "factor": 3.0}},
  "gemma3-untied": {
    **{k: v for k, v in _GEMMA3.items() if not k.startswith("rope_")},
    "tie_word_embeddings": False,
    "layer_types": ["full_attention", "sliding_attention"],
    "rope_parameters": {
      "full_attention": {"rope_type": "default", "rope_theta": 1000.0},
      "sliding_attention": {"rope_type": "default", "rope_theta": 20.0},
    },
  },
  "phi3": _PHI3,
  "phi3-everything-tied": {
    **_PHI3,
    "sliding_window": None,
    "tie_word_embeddings": True,
  },
  "gpt2": _GPT2,
  "gpt2-untied": {**_GPT2, "n_inner": 24, "tie_word_embeddings": False},
}

EOS = "<eos>"


def network(name: str, dtype: str = "float32") -> TransformerNetwork:
  """The network of one of `CONFIGS`."""
  return TransformerNetwork(from_hf(CONFIGS[name]), dtype)


def tensors(net: TransformerNetwork, params: Params) -> dict[str, np.ndarray]:
  """The weights as a checkpoint keeps them."""
  shapes = {path: value.shape for path, value in params.items()}
  found: dict[str, np.ndarray] = {}
  family = net.config.family
  for path, place in family.stored(shapes, (family.optional_prefix,)).items():
    whole = found.setdefault(place.name, np.zeros(place.shape, net.dtype))
    index = place.index(tuple(slice(0, size) for size in shapes[path]))
    value = np.asarray(params[path])
    whole[index] = value.T if place.transposed else value
  return found


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
