"""What differs between model families, as data.

A family says what its layers are made of, what a missing field of config.json
means, and how its checkpoints keep the tensors.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

# Our name of a parameter -> the checkpoint's.
_LLAMA_NAMES = {
  "draft_vocab_ids": "draft_vocab_ids",
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
_GEMMA_LAYER_NAMES = {
  **_LLAMA_LAYER_NAMES,
  "after_attention.scale": "post_attention_layernorm.weight",
  "mlp_norm.scale": "pre_feedforward_layernorm.weight",
  "after_mlp.scale": "post_feedforward_layernorm.weight",
}
_PHI3_LAYER_NAMES = {
  **_LLAMA_LAYER_NAMES,
  "attention.query.weight": "self_attn.qkv_proj.weight",
  "attention.key.weight": "self_attn.qkv_proj.weight",
  "attention.value.weight": "self_attn.qkv_proj.weight",
  "mlp.gate.weight": "mlp.gate_up_proj.weight",
  "mlp.up.weight": "mlp.gate_up_proj.weight",
}
_GPT2_NAMES = {
  "draft_vocab_ids": "draft_vocab_ids",
  "embed.weight": "transformer.wte.weight",
  "positions.weight": "transformer.wpe.weight",
  "final_norm.scale": "transformer.ln_f.weight",
  "final_norm.bias": "transformer.ln_f.bias",
  "head.weight": "lm_head.weight",
}
_GPT2_LAYER_NAMES = {
  "attention_norm.scale": "ln_1.weight",
  "attention_norm.bias": "ln_1.bias",
  "attention.query.weight": "attn.c_attn.weight",
  "attention.key.weight": "attn.c_attn.weight",
  "attention.value.weight": "attn.c_attn.weight",
  "attention.query.bias": "attn.c_attn.bias",
  "attention.key.bias": "attn.c_attn.bias",
  "attention.value.bias": "attn.c_attn.bias",
  "attention.out.weight": "attn.c_proj.weight",
  "attention.out.bias": "attn.c_proj.bias",
  "mlp_norm.scale": "ln_2.weight",
  "mlp_norm.bias": "ln_2.bias",
  "mlp.up.weight": "mlp.c_fc.weight",
  "mlp.up.bias": "mlp.c_fc.bias",
  "mlp.down.weight": "mlp.c_proj.weight",
  "mlp.down.bias": "mlp.c_proj.bias",
}

_QWEN_DEFAULTS = {"sliding_window": 4096, "max_window_layers": 28}
_GEMMA_TRAITS = {"norm_offset": 1, "post_norms": True, "scaled_embed": True}
_GEMMA_SPELLINGS = {"hidden_act": "hidden_activation"}
_GEMMA_DEFAULTS = {
  "head_dim": 256,
  "hidden_activation": "gelu_pytorch_tanh",
  "query_pre_attn_scalar": 256,
  "sliding_window": 4096,
  "tie_word_embeddings": True,
}


@dataclasses.dataclass(frozen=True)
class Stored:
  """Where a checkpoint keeps a parameter.

  Attributes:
    name: the tensor.
    shape: the shape of the tensor.
    begin: the first of its rows, or columns if transposed, that are ours.
    transposed: whether it is stored `[in, out]`.
  """

  name: str
  shape: tuple[int, ...]
  begin: int
  transposed: bool

  def index(self, ours: tuple[slice, ...]) -> tuple[slice, ...]:
    """The part of the tensor that is this part of the parameter."""
    rows, *rest = ours
    theirs = (slice(self.begin + rows.start, self.begin + rows.stop), *rest)
    return theirs[::-1] if self.transposed else theirs


@dataclasses.dataclass(frozen=True)
class Family:
  """One family of models.

  Attributes:
    architecture: what `architectures` of config.json calls it.
    names: our parameter outside of layers -> the checkpoint's tensor.
    layer_names: the same for the parameters of a layer. Parameters that share
      a tensor lie one after the other in it, in this order.
    layers: what stands before the number of a layer in a tensor's name.
    optional_prefix: what a checkpoint may leave out before all names.
    transposed: whether matrices of layers are stored `[in, out]`.
    ignored: endings of tensors that checkpoints may hold and nobody needs.
    traits: fields of `ModelConfig` that are the same in the whole family.
    flags: other fields of it -> the boolean field of config.json that decides,
      False if absent.
    spellings: a field of config.json -> what this family calls it.
    defaults: what fields absent from config.json mean. A field in neither
      place, if it is needed, is an error.
    required: flags of config.json of which one value only is supported.
    mlp_ratio: F / D where config.json does not say F; 0 if it must.
    local_theta: the field with the base of RoPE in layers with a window; ""
      if it is the same in all layers.
    windows: whether layers attend to a window only; a string names the boolean
      field that decides.
    first_window: layers before this one attend to everything all the same; a
      string names the field.
    full_every: so does every n-th layer, unless this is 0; a string names the
      field.
  """

  architecture: str
  names: Mapping[str, str] = dataclasses.field(
    default_factory=lambda: _LLAMA_NAMES
  )
  layer_names: Mapping[str, str] = dataclasses.field(
    default_factory=lambda: _LLAMA_LAYER_NAMES
  )
  layers: str = "model.layers."
  optional_prefix: str = ""
  transposed: bool = False
  ignored: tuple[str, ...] = ("rotary_emb.inv_freq",)
  traits: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  flags: Mapping[str, str] = dataclasses.field(default_factory=dict)
  spellings: Mapping[str, str] = dataclasses.field(default_factory=dict)
  defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  required: Mapping[str, bool] = dataclasses.field(default_factory=dict)
  mlp_ratio: int = 0
  local_theta: str = ""
  windows: bool | str = False
  first_window: int | str = 0
  full_every: int | str = 0

  def tensor_name(self, path: str) -> str:
    """The checkpoint's name of our parameter, `layers.3.mlp.up.weight`."""
    layer, name = _split(path)
    if not layer:
      return self.names[name]
    return f"{self.layers}{layer}.{self.layer_names[name]}"

  def stored(
    self, shapes: Mapping[str, tuple[int, ...]], tensors: Iterable[str]
  ) -> dict[str, Stored]:
    """Where a checkpoint keeps each parameter, by path.

    Args:
      shapes: the shapes of all parameters, by path.
      tensors: the names of the checkpoint's tensors.
    """
    prefix = self.optional_prefix
    bare = not any(name.startswith(prefix) for name in tensors)
    order = [*self.names, *self.layer_names]
    sharing: dict[str, list[str]] = {}
    for path in sorted(shapes, key=lambda path: order.index(_split(path)[1])):
      name = self.tensor_name(path)
      name = name.removeprefix(prefix) if bare else name
      sharing.setdefault(name, []).append(path)
    places = {}
    for name, paths in sharing.items():
      ends = [0, *itertools.accumulate(shapes[path][0] for path in paths)]
      shape = (ends[-1], *shapes[paths[0]][1:])
      turned = self.transposed and len(shape) == 2 and _split(paths[0])[0] != ""
      shape = shape[::-1] if turned else shape
      for path, begin in zip(paths, ends[:-1], strict=True):
        places[path] = Stored(name, shape, begin, turned)
    return places


def _split(path: str) -> tuple[str, str]:
  """The layer of a parameter, "" outside of them, and its name there."""
  if not path.startswith("layers."):
    return "", path
  _, layer, name = path.split(".", 2)
  return layer, name


FAMILIES = {
  family.architecture: family
  for family in (
    Family(
      architecture="LlamaForCausalLM",  # Llama 2 and 3
      flags={
        "qkv_bias": "attention_bias",
        "out_bias": "attention_bias",
        "mlp_bias": "mlp_bias",
      },
      # The first Llama 2 checkpoints do not say it.
      defaults={"rope_theta": 10000.0},
    ),
    Family(
      architecture="MistralForCausalLM",
      defaults={"sliding_window": 4096},
      windows=True,
    ),
    Family(
      architecture="Qwen2ForCausalLM",  # Qwen2 and 2.5
      traits={"qkv_bias": True},
      defaults=_QWEN_DEFAULTS,
      windows="use_sliding_window",
      first_window="max_window_layers",
    ),
    Family(
      architecture="Qwen3ForCausalLM",
      traits={"qk_norm": True},
      flags={"qkv_bias": "attention_bias", "out_bias": "attention_bias"},
      defaults={**_QWEN_DEFAULTS, "head_dim": 128},
      windows="use_sliding_window",
      first_window="max_window_layers",
    ),
    Family(
      architecture="Gemma2ForCausalLM",
      layer_names=_GEMMA_LAYER_NAMES,
      traits=_GEMMA_TRAITS,
      flags={"qkv_bias": "attention_bias", "out_bias": "attention_bias"},
      spellings=_GEMMA_SPELLINGS,
      defaults={
        **_GEMMA_DEFAULTS,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
      },
      required={"use_bidirectional_attention": False},
      windows=True,
      full_every=2,
    ),
    Family(
      architecture="Gemma3ForCausalLM",  # text only
      layer_names=_GEMMA_LAYER_NAMES,
      traits={**_GEMMA_TRAITS, "qk_norm": True},
      flags={"qkv_bias": "attention_bias", "out_bias": "attention_bias"},
      spellings=_GEMMA_SPELLINGS,
      defaults={**_GEMMA_DEFAULTS, "sliding_window_pattern": 6},
      required={"use_bidirectional_attention": False},
      local_theta="rope_local_base_freq",
      windows=True,
      full_every="sliding_window_pattern",
    ),
    Family(
      architecture="Phi3ForCausalLM",
      layer_names=_PHI3_LAYER_NAMES,
      defaults={"rms_norm_eps": 1e-5},
      windows=True,
    ),
    Family(
      architecture="GPT2LMHeadModel",
      names=_GPT2_NAMES,
      layer_names=_GPT2_LAYER_NAMES,
      layers="transformer.h.",
      optional_prefix="transformer.",
      transposed=True,
      # Masks, in old checkpoints.
      ignored=(".attn.bias", ".attn.masked_bias"),
      traits={
        "qkv_bias": True,
        "out_bias": True,
        "mlp_bias": True,
        "layer_norm": True,
        "gated_mlp": False,
        "rope_theta": None,
      },
      spellings={
        "hidden_act": "activation_function",
        "hidden_size": "n_embd",
        "intermediate_size": "n_inner",
        "max_position_embeddings": "n_positions",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
        "rms_norm_eps": "layer_norm_epsilon",
      },
      defaults={
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": True,
      },
      required={
        "add_cross_attention": False,
        "reorder_and_upcast_attn": False,
        "scale_attn_by_inverse_layer_idx": False,
        "scale_attn_weights": True,
      },
      mlp_ratio=4,
    ),
  )
}
