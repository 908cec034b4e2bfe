"""What differs between model families, as data.

A family says which biases and norms a layer has, what a missing field of
config.json means, and how its checkpoints name the tensors.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

# Our name of a parameter -> the checkpoint's. Weights are [out, in] in both.
_LLAMA_NAMES = {
  "embed.weight": "model.embed_tokens.weight",
  "final_norm.scale": "model.norm.weight",
  "head.weight": "lm_head.weight",
}
_LLAMA_LAYER_NAMES = {
  "attention_norm.scale": "input_layernorm.weight",
  "attention.query.weight": "self_attn.q_proj.weight",
  "attention.query.bias": "self_attn.q_proj.bias",
  "attention.key.weight": "self_attn.k_proj.weight",
  "attention.key.bias": "self_attn.k_proj.bias",
  "attention.value.weight": "self_attn.v_proj.weight",
  "attention.value.bias": "self_attn.v_proj.bias",
  "attention.out.weight": "self_attn.o_proj.weight",
  "attention.out.bias": "self_attn.o_proj.bias",
  "attention.query_norm.scale": "self_attn.q_norm.weight",
  "attention.key_norm.scale": "self_attn.k_norm.weight",
  "mlp_norm.scale": "post_attention_layernorm.weight",
  "mlp.gate.weight": "mlp.gate_proj.weight",
  "mlp.gate.bias": "mlp.gate_proj.bias",
  "mlp.up.weight": "mlp.up_proj.weight",
  "mlp.up.bias": "mlp.up_proj.bias",
  "mlp.down.weight": "mlp.down_proj.weight",
  "mlp.down.bias": "mlp.down_proj.bias",
}


@dataclasses.dataclass(frozen=True)
class Family:
  """One family of models.

  Attributes:
    architecture: what `architectures` of config.json calls it.
    names: our parameter outside of layers -> the checkpoint's tensor.
    layer_names: the same for the parameters of a layer.
    qkv_bias: biases of query, key and value; a string names the boolean field
      of config.json that decides (absent: False).
    out_bias: bias of attention's output, likewise.
    mlp_bias: biases of the mlp, likewise.
    qk_norm: whether each head of query and key is normalised before RoPE.
    ignored: endings of tensors that checkpoints may hold and nobody needs.
    defaults: what fields absent from config.json mean. A field in neither
      place, if it is needed, is an error.
  """

  architecture: str
  names: Mapping[str, str]
  layer_names: Mapping[str, str]
  qkv_bias: bool | str = False
  out_bias: bool | str = False
  mlp_bias: bool | str = False
  qk_norm: bool = False
  ignored: tuple[str, ...] = ("rotary_emb.inv_freq",)
  defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  def tensor_name(self, path: str) -> str:
    """The checkpoint's name of our parameter, `layers.3.mlp.up.weight`."""
    room, _, rest = path.partition(".")
    if room != "layers":
      return self.names[path]
    layer, _, rest = rest.partition(".")
    return f"model.layers.{layer}.{self.layer_names[rest]}"


FAMILIES = {
  family.architecture: family
  for family in (
    Family(
      architecture="LlamaForCausalLM",  # Llama 2 and 3
      names=_LLAMA_NAMES,
      layer_names=_LLAMA_LAYER_NAMES,
      qkv_bias="attention_bias",
      out_bias="attention_bias",
      mlp_bias="mlp_bias",
      # The first Llama 2 checkpoints do not say it.
      defaults={"rope_theta": 10000.0},
    ),
    Family(
      architecture="Qwen2ForCausalLM",  # Qwen2 and 2.5
      names=_LLAMA_NAMES,
      layer_names=_LLAMA_LAYER_NAMES,
      qkv_bias=True,
    ),
    Family(
      architecture="Qwen3ForCausalLM",
      names=_LLAMA_NAMES,
      layer_names=_LLAMA_LAYER_NAMES,
      qkv_bias="attention_bias",
      out_bias="attention_bias",
      qk_norm=True,
      defaults={"head_dim": 128},
    ),
  )
}
