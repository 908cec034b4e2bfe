"""Writes tiny GGUF files, as llama.cpp's converters would."""

import gguf
import numpy as np

ARCHITECTURES = {
  "LlamaForCausalLM": "llama",
  "Qwen2ForCausalLM": "qwen2",
  "Qwen3ForCausalLM": "qwen3",
  "Gemma3ForCausalLM": "gemma3",
}
_NAMES = {
  "embed_tokens": "token_embd",
  "lm_head": "output",
  "model.norm": "output_norm",
  "model.layers": "blk",
  "self_attn.q_proj": "attn_q",
  "self_attn.k_proj": "attn_k",
  "self_attn.v_proj": "attn_v",
  "self_attn.o_proj": "attn_output",
  "self_attn.q_norm": "attn_q_norm",
  "self_attn.k_norm": "attn_k_norm",
  "mlp.gate_proj": "ffn_gate",
  "mlp.up_proj": "ffn_up",
  "mlp.down_proj": "ffn_down",
  "input_layernorm": "attn_norm",
}
_NORMS = {"post_attention_layernorm": "ffn_norm"}
_GEMMA_NORMS = {
  "post_attention_layernorm": "post_attention_norm",
  "pre_feedforward_layernorm": "ffn_norm",
  "post_feedforward_layernorm": "post_ffw_norm",
}


def gguf_name(name, architecture):
  norms = _GEMMA_NORMS if architecture == "gemma3" else _NORMS
  for theirs, ours in (_NAMES | norms).items():
    name = name.replace(theirs, ours)
  return name.removeprefix("model.")


def interleaved(tensor, heads):
  """Rows of a head so that the halves that rotate together alternate."""
  size = len(tensor) // heads
  order = [
    head * size + half * size // 2 + pair
    for head in range(heads)
    for pair in range(size // 2)
    for half in range(2)
  ]
  return tensor[order]


def write(path, fields, tensors, *, types=None, header=None, **writing):
  """Writes a model.

  Args:
    path: the file.
    fields: its config.json.
    tensors: by Hugging Face's names, in its layout; float32, or the bytes of a
      quantised tensor.
    types: the type by Hugging Face's name; others are F32.
    header: more key-value pairs: a function of the writer.
    writing: arguments of the writer.
  """
  kind = ARCHITECTURES[fields["architectures"][0]]
  writer = gguf.GGUFWriter(path, kind, **writing)
  rope = fields.get("rope_parameters", fields)
  writer.add_context_length(fields["max_position_embeddings"])
  writer.add_embedding_length(fields["hidden_size"])
  writer.add_block_count(fields["num_hidden_layers"])
  writer.add_feed_forward_length(fields["intermediate_size"])
  writer.add_head_count(fields["num_attention_heads"])
  writer.add_head_count_kv(fields["num_key_value_heads"])
  writer.add_key_length(fields["head_dim"])
  writer.add_layer_norm_rms_eps(fields["rms_norm_eps"])
  writer.add_rope_freq_base(rope["rope_theta"])
  if kind == "gemma3":
    writer.add_sliding_window(fields["sliding_window"])
    writer.add_float32("gemma3.rope.freq_base_swa", 20.0)
    writer.add_uint32("gemma3.attention.sliding_window_pattern", 2)
  scaling = fields.get("rope_scaling", rope)
  if scaling.get("rope_type", "default") not in ("default", "llama3"):
    writer.add_string(f"{kind}.rope.scaling.type", scaling["rope_type"])
    writer.add_rope_scaling_factor(scaling["factor"])
  if header is not None:
    header(writer)
  for name, tensor in tensors.items():
    if kind == "llama" and "q_proj" in name:
      tensor = interleaved(tensor, fields["num_attention_heads"])
    if kind == "llama" and "k_proj" in name:
      tensor = interleaved(tensor, fields["num_key_value_heads"])
    if kind == "gemma3" and name.endswith("norm.weight"):
      tensor = tensor + 1
    writer.add_tensor(
      gguf_name(name, kind), tensor, raw_dtype=(types or {}).get(name)
    )
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.write_tensors_to_file()
  writer.close()


def add_words(size):
  """Adds a tokenizer of words that cannot be joined, and an end, last."""

  def add(writer):
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([f"w{i}" for i in range(size - 1)] + ["<|im_end|>"])
    writer.add_token_types([1] * (size - 1) + [3])
    writer.add_token_merges([])
    writer.add_eos_token_id(size - 1)

  return add


def read_all(path):
  """The numbers of a file, by GGUF's names, as the package reads them."""
  return {
    tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    for tensor in gguf.GGUFReader(path).tensors
  }


def random_bytes(rng, rows, columns, kind):
  """A quantised tensor: no bytes that would make a scale infinite."""
  block, size = gguf.GGML_QUANT_SIZES[kind]
  return rng.integers(0, 0x3C, (rows, columns // block * size), np.uint8)
