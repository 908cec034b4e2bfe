"""What differs between model families, as data.

A family says which biases and norms a layer has, what a missing field of
config.json means, and how its checkpoints name the tensors. A checkpoint name
is a template: `{i}` is the layer.
"""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

# Our name of a parameter -> the checkpoint's. Weights are [out, in] in both.
_LLAMA_NAMES = MappingProxyType(
  {
    "embed.weight": "model.embed_tokens.weight",
    "layers.{i}.attention_norm.scale": "model.layers.{i}.input_layernorm.weight",
    "layers.{i}.attention.query.weight": "model.layers.{i}.self_attn.q_proj.weight",
    "layers.{i}.attention.query.bias": "model.layers.{i}.self_attn.q_proj.bias",
    "layers.{i}.attention.key.weight": "model.layers.{i}.self_attn.k_proj.weight",
    "layers.{i}.attention.key.bias": "model.layers.{i}.self_attn.k_proj.bias",
    "layers.{i}.attention.value.weight": "model.layers.{i}.self_attn.v_proj.weight",
    "layers.{i}.attention.value.bias": "model.layers.{i}.self_attn.v_proj.bias",
    "layers.{i}.attention.out.weight": "model.layers.{i}.self_attn.o_proj.weight",
    "layers.{i}.attention.out.bias": "model.layers.{i}.self_attn.o_proj.bias",
    "layers.{i}.attention.query_norm.scale": "model.layers.{i}.self_attn.q_norm.weight",
    "layers.{i}.attention.key_norm.scale": "model.layers.{i}.self_attn.k_norm.weight",
    "layers.{i}.mlp_norm.scale": "model.layers.{i}.post_attention_layernorm.weight",
    "layers.{i}.mlp.gate.weight": "model.layers.{i}.mlp.gate_proj.weight",
    "layers.{i}.mlp.gate.bias": "model.layers.{i}.mlp.gate_proj.bias",
    "layers.{i}.mlp.up.weight": "model.layers.{i}.mlp.up_proj.weight",
    "layers.{i}.mlp.up.bias": "model.layers.{i}.mlp.up_proj.bias",
    "layers.{i}.mlp.down.weight": "model.layers.{i}.mlp.down_proj.weight",
    "layers.{i}.mlp.down.bias": "model.layers.{i}.mlp.down_proj.bias",
    "final_norm.scale": "model.norm.weight",
    "head.weight": "lm_head.weight",
  }
)


@dataclasses.dataclass(frozen=True)
class Family:
  """One family of models.

  Attributes:
    name: what people call it.
    architecture: `architectures[0]` of config.json.
    qkv_bias: biases of query, key and value; a string names the boolean field
      of config.json that decides (absent: False).
    out_bias: bias of attention's output, likewise.
    mlp_bias: biases of the mlp, likewise.
    qk_norm: whether each head of query and key is normalised before RoPE.
    names: our parameter -> the checkpoint's tensor.
    ignored: endings of tensors that checkpoints may hold and nobody needs.
    defaults: what fields absent from config.json mean. A field in neither
      place, if it is needed, is an error.
  """

  name: str
  architecture: str
  qkv_bias: bool | str = False
  out_bias: bool | str = False
  mlp_bias: bool | str = False
  qk_norm: bool = False
  names: Mapping[str, str] = _LLAMA_NAMES
  ignored: tuple[str, ...] = ("rotary_emb.inv_freq",)
  defaults: Mapping[str, Any] = MappingProxyType({})

  def tensor_name(self, path: str) -> str:
    """The checkpoint's name of our parameter `layers.3.mlp.up.weight`."""
    head, _, rest = path.partition(".")
    if head != "layers":
      return self.names[path]
    layer, _, rest = rest.partition(".")
    return self.names["layers.{i}." + rest].format(i=layer)


FAMILIES = {
  family.architecture: family
  for family in (
    Family(
      name="Llama 2 and 3",
      architecture="LlamaForCausalLM",
      qkv_bias="attention_bias",
      out_bias="attention_bias",
      mlp_bias="mlp_bias",
      # The first Llama 2 checkpoints do not say it.
      defaults=MappingProxyType({"rope_theta": 10000.0}),
    ),
    Family(
      name="Qwen2 and 2.5",
      architecture="Qwen2ForCausalLM",
      qkv_bias=True,
    ),
    Family(
      name="Qwen3",
      architecture="Qwen3ForCausalLM",
      qkv_bias="attention_bias",
      out_bias="attention_bias",
      qk_norm=True,
      defaults=MappingProxyType({"head_dim": 128}),
    ),
  )
}
