"""Tiny checkpoints in folders, as they come from the hub."""

import json

import numpy as np
import safetensors.numpy
import tokenizers

EOS = "<eos>"
SIZES = {"hidden": 16, "mlp": 24, "heads": 2, "vocab": 257}
CONFIG = {
  "architectures": ["LlamaForCausalLM"],
  "model_type": "llama",
  "vocab_size": SIZES["vocab"],
  "hidden_size": SIZES["hidden"],
  "intermediate_size": SIZES["mlp"],
  "num_hidden_layers": 1,
  "num_attention_heads": SIZES["heads"],
  "num_key_value_heads": SIZES["heads"],
  "head_dim": SIZES["hidden"] // SIZES["heads"],
  "hidden_act": "silu",
  "rms_norm_eps": 1e-5,
  "rope_theta": 10000.0,
  "max_position_embeddings": 256,
  "tie_word_embeddings": False,
}
CHAT_TEMPLATE = (
  "{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}\n{% endfor %}"
)


def save_tokenizer(folder, first="!"):
  """Saves a tokenizer of bytes, whose ids begin with a character."""
  alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
  alphabet.sort(key=lambda char: char != first)
  vocab = {char: index for index, char in enumerate([*alphabet, EOS])}
  tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, []))
  tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(
    add_prefix_space=False
  )
  tokenizer.decoder = tokenizers.decoders.ByteLevel()
  tokenizer.add_special_tokens([EOS])
  tokenizer.save(str(folder / "tokenizer.json"))
  config = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "eos_token": EOS,
    "chat_template": CHAT_TEMPLATE,
  }
  (folder / "tokenizer_config.json").write_text(json.dumps(config))


def save_weights(folder, seed, noise):
  """Saves random weights, and as much noise of another seed on top."""
  hidden, mlp, vocab = SIZES["hidden"], SIZES["mlp"], SIZES["vocab"]
  layer = "model.layers.0"
  shapes = {
    "model.embed_tokens.weight": (vocab, hidden),
    f"{layer}.self_attn.q_proj.weight": (hidden, hidden),
    f"{layer}.self_attn.k_proj.weight": (hidden, hidden),
    f"{layer}.self_attn.v_proj.weight": (hidden, hidden),
    f"{layer}.self_attn.o_proj.weight": (hidden, hidden),
    f"{layer}.mlp.gate_proj.weight": (mlp, hidden),
    f"{layer}.mlp.up_proj.weight": (mlp, hidden),
    f"{layer}.mlp.down_proj.weight": (hidden, mlp),
    "lm_head.weight": (vocab, hidden),
  }
  rng, other = np.random.default_rng(seed), np.random.default_rng(seed + 1)
  tensors = {
    name: (
      rng.normal(size=shape) * 0.5 + other.normal(size=shape) * noise
    ).astype(np.float32)
    for name, shape in shapes.items()
  }
  norms = ("input_layernorm", "post_attention_layernorm")
  for name in (*(f"{layer}.{norm}" for norm in norms), "model.norm"):
    tensors[f"{name}.weight"] = np.ones(hidden, np.float32)
  safetensors.numpy.save_file(tensors, folder / "model.safetensors")


def save_checkpoint(folder, *, seed=0, noise=0.0, generation=None, **config):
  """Saves a model that Llama's code can read; returns its folder."""
  folder.mkdir()
  (folder / "config.json").write_text(json.dumps(CONFIG | config))
  if generation is not None:
    text = json.dumps(generation)
    (folder / "generation_config.json").write_text(text)
  save_tokenizer(folder)
  save_weights(folder, seed, noise)
  return folder
