"""The shape of a model, read from a Hugging Face config.json."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from specdec_jax.models import families, rope
from specdec_jax.models.fields import Fields, short

_ACTIVATIONS = {
  "silu": "silu",
  "swish": "silu",
  "gelu": "gelu",
  "gelu_new": "gelu_tanh",
  "gelu_pytorch_tanh": "gelu_tanh",
  "relu": "relu",
}
# In layer_types.
FULL_LAYER, WINDOW_LAYER = "full_attention", "sliding_attention"


@dataclasses.dataclass(frozen=True)
class ModelConfig:
  """The shape of a decoder. Hashable: programs are compiled for it.

  Attributes:
    architecture: key of `families.FAMILIES`.
    vocab_size: V, the width of the logits.
    num_layers: L.
    hidden_size: D.
    mlp_size: F.
    num_heads: N.
    num_kv_heads: M; divides N.
    head_dim: H.
    rope_theta: base of the rotary frequencies; None where positions are
      learned instead, a row for each.
    max_length: the longest sequence the model was made for, in tokens.
    rope_scaling: how rotary frequencies are stretched, or None.
    local_rope_theta: base in layers with a window, where nothing is stretched;
      None if they are as other layers.
    window: how many tokens a layer sees, the newest included; 0 for all.
    full_layers: layers that see all tokens all the same.
    norm_eps: added to the mean square, or the variance, in every norm.
    norm_offset: added to the scale of every norm.
    layer_norm: whether norms subtract the mean and add a bias.
    post_norms: whether attention and mlp are normalised before they are added.
    scaled_embed: whether embeddings are multiplied by the root of D.
    tied: whether the head is the embedding.
    draft_vocab_size: rows of a head that knows some tokens only, at most V;
      0 if it knows them all. A field of ours in config.json, made by training.
    qkv_bias: whether query, key and value have biases.
    out_bias: whether attention's output has a bias.
    mlp_bias: whether the mlp has biases.
    qk_norm: whether heads of query and key are normalised.
    query_scalar: scores are divided by its root; H unless given.
    score_cap: scores s become c tanh(s / c), unless this is None.
    logit_cap: likewise for logits.
    gated_mlp: whether the mlp has a gate.
    activation: "silu", "gelu", "gelu_tanh" or "relu".
    known_rows: rows that the checkpoint really had, at most V. Tokens at and
      past it have no logits: a finite, very negative number instead.
  """

  architecture: str
  vocab_size: int
  num_layers: int
  hidden_size: int
  mlp_size: int
  num_heads: int
  num_kv_heads: int
  head_dim: int
  rope_theta: float | None
  max_length: int
  rope_scaling: rope.Scaling | None = None
  local_rope_theta: float | None = None
  window: int = 0
  full_layers: range | tuple[int, ...] = ()
  norm_eps: float = 1e-6
  norm_offset: int = 0
  layer_norm: bool = False
  post_norms: bool = False
  scaled_embed: bool = False
  tied: bool = False
  draft_vocab_size: int = 0
  qkv_bias: bool = False
  out_bias: bool = False
  mlp_bias: bool = False
  qk_norm: bool = False
  query_scalar: float = 0.0
  score_cap: float | None = None
  logit_cap: float | None = None
  gated_mlp: bool = True
  activation: str = "silu"
  known_rows: int = 0

  def __post_init__(self) -> None:
    for name, value in (
      ("known_rows", self.vocab_size),
      ("query_scalar", self.head_dim),
    ):
      if not getattr(self, name):
        object.__setattr__(self, name, value)
    rotated = self.rope_theta is not None
    faults = _misfits(self.num_heads, self.num_kv_heads, self.head_dim, rotated)
    if faults:
      raise ValueError("; ".join(faults))

  @property
  def family(self) -> families.Family:
    """What differs between families, as data."""
    return families.FAMILIES[self.architecture]

  def window_of(self, layer: int) -> int:
    """How many tokens a layer sees; 0 for all."""
    return 0 if layer in self.full_layers else self.window

  def with_vocab(self, size: int, rows: int | None = None) -> "ModelConfig":
    """This model for a tokenizer of `size` tokens.

    Args:
      size: of the tokenizer. Rows that the checkpoint has beyond it are cut;
        rows that it lacks are padded.
      rows: V, `size` or more; that if None.
    """
    return dataclasses.replace(
      self,
      vocab_size=size if rows is None else rows,
      known_rows=min(self.known_rows, size),
    )


def from_hf(config: Mapping[str, Any]) -> ModelConfig:
  """Reads the dictionary of a config.json.

  Spellings of transformers 4 and 5 are both understood.

  Raises:
    ValueError: an architecture that is not supported; or else all fields that
      are missing, wrong or not supported, at once.
  """
  faults: list[str] = []
  family = _family(config)
  # A field that is null stays so: it says no window, no cap.
  fields = Fields(
    {**family.defaults, **config}, faults, spellings=family.spellings
  )
  for name, only in family.required.items():
    if fields.boolean(name, only) != only:
      fields.refuse(name, str(only))
  num_layers = fields.integer("num_hidden_layers")
  hidden_size = fields.integer("hidden_size")
  heads = fields.integer("num_attention_heads")
  kv_heads = fields.integer("num_key_value_heads", heads)
  head_dim, rest = divmod(hidden_size, heads) if heads else (0, 0)
  if rest and "head_dim" not in fields:
    head_dim = 0
    faults.append(
      f"head_dim is missing, and hidden_size {hidden_size} does not divide "
      f"over num_attention_heads {heads}"
    )
  head_dim = fields.integer("head_dim", head_dim)
  max_length = fields.integer("max_position_embeddings")
  values = dict(family.traits)
  rotated = "rope_theta" not in values  # else it is None
  faults += _misfits(heads, kv_heads, head_dim, rotated)
  if rotated:
    values |= _rope(fields, family, max_length)
  for name, flag in family.flags.items():
    values[name] = fields.boolean(flag)
  for name, cap in (
    ("score_cap", "attn_logit_softcapping"),
    ("logit_cap", "final_logit_softcapping"),
  ):
    values[name] = fields.number(cap) if cap in fields else None
  mlp_size = family.mlp_ratio * hidden_size if family.mlp_ratio else None
  vocab_size = fields.integer("vocab_size")
  draft_vocab_size = fields.integer("draft_vocab_size", 0)
  if draft_vocab_size > vocab_size:
    fields.refuse("draft_vocab_size", f"at most vocab_size, {vocab_size}")
  if draft_vocab_size and fields.boolean("tie_word_embeddings"):
    fields.refuse("tie_word_embeddings", "false with a draft_vocab_size")
  values |= {
    "vocab_size": vocab_size,
    "draft_vocab_size": draft_vocab_size,
    "mlp_size": fields.integer("intermediate_size", mlp_size),
    "norm_eps": fields.number("rms_norm_eps", 1e-6),
    "tied": fields.boolean("tie_word_embeddings"),
    "query_scalar": fields.number("query_pre_attn_scalar", head_dim),
  }
  values |= _windows(fields, family, num_layers)
  activation = fields.choice("hidden_act", "silu", _ACTIVATIONS)
  if faults:
    raise ValueError("config.json: " + "; ".join(dict.fromkeys(faults)))
  return ModelConfig(
    architecture=family.architecture,
    num_layers=num_layers,
    hidden_size=hidden_size,
    num_heads=heads,
    num_kv_heads=kv_heads,
    head_dim=head_dim,
    max_length=max_length,
    activation=_ACTIVATIONS[activation],
    **values,
  )


def _family(config: Mapping[str, Any]) -> families.Family:
  """What decides how the other fields are read."""
  faults: list[str] = []
  names = Fields(config, faults).words("architectures")
  for name in names:
    if name in families.FAMILIES:
      return families.FAMILIES[name]
  unknown = f"architectures {short(names)} are not supported"
  reason = "; ".join(faults) or unknown
  if "text_config" in config:
    reason += " (a model of more than text; look for one of its text alone)"
  raise ValueError(
    f"config.json: {reason}; supported: {', '.join(sorted(families.FAMILIES))}"
  )


def _misfits(
  heads: int, kv_heads: int, head_dim: int, rotated: bool
) -> list[str]:
  """Why these numbers make no attention; 0 is one that is not known."""
  faults = []
  if kv_heads and heads % kv_heads:
    faults.append(
      f"{heads} query heads do not divide over {kv_heads} key-value heads"
    )
  if rotated and head_dim % 2:
    faults.append(f"RoPE needs an even head_dim, got {head_dim}")
  return faults


def _windows(
  fields: Fields, family: families.Family, num_layers: int
) -> dict[str, Any]:
  """Which layers see how much."""

  def count(value: int | str, least: int) -> int:
    if isinstance(value, str):
      return fields.integer(value, least=least)
    return value

  windows = family.windows
  if isinstance(windows, str):
    windows = fields.boolean(windows)
  windows = windows and "sliding_window" in fields
  window = fields.integer("sliding_window") if windows else 0
  full: range | tuple[int, ...] = ()
  if kinds := fields.words("layer_types", (FULL_LAYER, WINDOW_LAYER)):
    full = tuple(i for i, kind in enumerate(kinds) if kind == FULL_LAYER)
    if len(kinds) != num_layers:
      fields.refuse("layer_types", f"one for each of {num_layers} layers")
    if WINDOW_LAYER in kinds and not windows:
      fields.refuse(
        "layer_types", f"only {FULL_LAYER} without a sliding_window"
      )
  elif window and family.full_every:
    every = count(family.full_every, 1) or 1
    full = range(every - 1, num_layers, every)
  elif window:
    full = range(count(family.first_window, 0))
  return {"window": window, "full_layers": full if window else ()}


def _rope(
  fields: Fields, family: families.Family, max_length: int
) -> dict[str, Any]:
  """RoPE, from `rope_parameters` or its older spellings."""
  name = "rope_parameters" if "rope_parameters" in fields else "rope_scaling"
  if fields.contradict("rope_parameters", "rope_scaling"):
    fields.faults.append("rope_parameters and rope_scaling differ")
  own = fields.fields(name)
  local_theta = None
  if family.local_theta:
    # transformers 5 has an object for each kind of layer.
    local = own.fields(WINDOW_LAYER)
    local.choice("rope_type", "default", ("default",))
    local_theta = (
      local.number("rope_theta")
      if "rope_theta" in local
      else fields.number(family.local_theta)
    )
    own = own.fields(FULL_LAYER) if FULL_LAYER in own else own

  def either(name: str) -> Fields:
    return own if name in own else fields

  theta = either("rope_theta").number("rope_theta")
  partial = "partial_rotary_factor"
  if either(partial).number(partial, 1.0) not in (0.0, 1.0):
    fields.faults.append(f"{partial} other than 1 is not supported")
  original = fields.integer("original_max_position_embeddings", max_length)
  return {
    "rope_theta": theta,
    "rope_scaling": rope.scaling_from_hf(own, theta, original),
    "local_rope_theta": local_theta,
  }
