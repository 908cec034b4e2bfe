"""The shape of a model, read from a Hugging Face config.json."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from specdec_jax.models import families

_ACTIVATIONS = {
  "silu": "silu",
  "swish": "silu",
  "gelu": "gelu",
  "gelu_new": "gelu_tanh",
  "gelu_pytorch_tanh": "gelu_tanh",
  "relu": "relu",
}
_SIZES = (
  "vocab_size",
  "num_hidden_layers",
  "hidden_size",
  "intermediate_size",
  "num_attention_heads",
  "max_position_embeddings",
)


@dataclasses.dataclass(frozen=True)
class RopeScaling:
  """How rotary frequencies are stretched for long contexts.

  Attributes:
    kind: "linear" or "llama3".
    factor: by how much positions (linear) or low frequencies (llama3) shrink.
    low_freq_factor: llama3: wavelengths above original_max_length / this are
      stretched by the whole factor.
    high_freq_factor: llama3: wavelengths below original_max_length / this are
      left alone.
    original_max_length: llama3: the context of the pretrained model.
  """

  kind: str
  factor: float
  low_freq_factor: float = 1.0
  high_freq_factor: float = 1.0
  original_max_length: int = 0


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
    rope_theta: base of the rotary frequencies.
    rope_scaling: how they are stretched, or None.
    rms_norm_eps: added to the mean square in every norm.
    max_length: the longest sequence the model was made for.
    tied: whether the head is the embedding.
    qkv_bias: whether query, key and value have biases.
    out_bias: whether attention's output has a bias.
    mlp_bias: whether the mlp has biases.
    qk_norm: whether heads of query and key are normalised.
    activation: "silu", "gelu", "gelu_tanh" or "relu".
    stored_rows: rows of embedding and head as stored, at least V. More than V
      where V does not divide over the mesh; logits are cut back to V.
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
  rope_theta: float
  max_length: int
  rope_scaling: RopeScaling | None = None
  rms_norm_eps: float = 1e-6
  tied: bool = False
  qkv_bias: bool = False
  out_bias: bool = False
  mlp_bias: bool = False
  qk_norm: bool = False
  activation: str = "silu"
  stored_rows: int = 0
  known_rows: int = 0

  def __post_init__(self) -> None:
    if not self.stored_rows:
      object.__setattr__(self, "stored_rows", self.vocab_size)
    if not self.known_rows:
      object.__setattr__(self, "known_rows", self.vocab_size)
    if self.num_heads % self.num_kv_heads:
      raise ValueError(
        f"{self.num_heads} query heads do not divide over "
        f"{self.num_kv_heads} key-value heads"
      )
    if self.head_dim % 2:
      raise ValueError(f"RoPE needs an even head_dim, got {self.head_dim}")

  @property
  def family(self) -> families.Family:
    """What differs between families, as data."""
    return families.FAMILIES[self.architecture]

  def with_vocab(self, size: int, multiple: int = 1) -> "ModelConfig":
    """This model for a tokenizer of `size` tokens.

    Args:
      size: V. Rows that the checkpoint has beyond it are cut; rows that it
        lacks are padded.
      multiple: stored rows are rounded up to a multiple of this.
    """
    return dataclasses.replace(
      self,
      vocab_size=size,
      stored_rows=-(-size // multiple) * multiple,
      known_rows=min(self.vocab_size, size),
    )


def from_hf(config: Mapping[str, Any]) -> ModelConfig:
  """Reads the dictionary of a config.json.

  Spellings of transformers 4 and 5 are both understood. All faults are
  reported at once.

  Raises:
    ValueError: a model that is not supported, or fields that are missing.
  """
  architectures = config.get("architectures") or []
  known = [name for name in architectures if name in families.FAMILIES]
  if not known:
    raise ValueError(
      f"architectures {list(architectures)} of config.json are not supported; "
      f"supported: {', '.join(sorted(families.FAMILIES))}"
    )
  family = families.FAMILIES[known[0]]
  fields = {
    **family.defaults,
    **{k: v for k, v in config.items() if v is not None},
  }
  faults = [f"{name} is missing" for name in _SIZES if name not in fields]
  for name in (*_SIZES, "num_key_value_heads", "head_dim"):
    value = fields.get(name, 1)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
      faults.append(f"{name} is {value!r}, expected a positive integer")
  activation = fields.get("hidden_act", "silu")
  if activation not in _ACTIVATIONS:
    faults.append(
      f"hidden_act {activation!r} is not supported; "
      f"supported: {', '.join(_ACTIVATIONS)}"
    )
  if (message := _sliding_window(fields)) is not None:
    faults.append(message)
  theta, scaling = None, None
  try:
    theta, scaling = _rope(fields)
  except ValueError as error:
    faults.append(str(error))
  if faults:
    raise ValueError("config.json: " + "; ".join(faults))
  assert theta is not None
  heads = fields["num_attention_heads"]

  def flag(value: bool | str) -> bool:
    return bool(fields.get(value, False)) if isinstance(value, str) else value

  return ModelConfig(
    architecture=family.architecture,
    vocab_size=fields["vocab_size"],
    num_layers=fields["num_hidden_layers"],
    hidden_size=fields["hidden_size"],
    mlp_size=fields["intermediate_size"],
    num_heads=heads,
    num_kv_heads=fields.get("num_key_value_heads", heads),
    head_dim=fields.get("head_dim", fields["hidden_size"] // heads),
    rope_theta=theta,
    rope_scaling=scaling,
    rms_norm_eps=float(fields.get("rms_norm_eps", 1e-6)),
    max_length=fields["max_position_embeddings"],
    tied=bool(fields.get("tie_word_embeddings", False)),
    qkv_bias=flag(family.qkv_bias),
    out_bias=flag(family.out_bias),
    mlp_bias=flag(family.mlp_bias),
    qk_norm=family.qk_norm,
    activation=_ACTIVATIONS[activation],
  )


def _sliding_window(fields: Mapping[str, Any]) -> str | None:
  """Says so if a layer of the model attends to a window only."""
  kinds = fields.get("layer_types")
  if kinds is not None:
    other = sorted(set(kinds) - {"full_attention"})
    if other:
      return f"layer_types {', '.join(map(str, other))} are not supported yet"
    return None
  full = fields.get("max_window_layers", 0)
  layers = fields.get("num_hidden_layers", 0)
  # Qwen2: the first max_window_layers layers see everything all the same.
  if fields.get("use_sliding_window") and full < layers:
    return "use_sliding_window is true: sliding windows are not supported yet"
  return None


def _rope(fields: Mapping[str, Any]) -> tuple[float, RopeScaling | None]:
  """Base and scaling, from `rope_parameters` or its older spellings."""
  rope = dict(fields.get("rope_parameters") or fields.get("rope_scaling") or {})
  theta = rope.get("rope_theta", fields.get("rope_theta"))
  if theta is None:
    raise ValueError("rope_theta is missing, as is rope_parameters.rope_theta")
  partial = rope.get(
    "partial_rotary_factor", fields.get("partial_rotary_factor", 1.0)
  )
  if partial != 1.0:
    raise ValueError(f"partial_rotary_factor {partial} is not supported")
  kind = rope.get("rope_type", rope.get("type", "default"))
  if kind == "default":
    return float(theta), None
  needs = {
    "linear": {"factor": "factor"},
    "llama3": {
      "factor": "factor",
      "low_freq_factor": "low_freq_factor",
      "high_freq_factor": "high_freq_factor",
      "original_max_position_embeddings": "original_max_length",
    },
  }
  if kind not in needs:
    raise ValueError(
      f"rope scaling {kind!r} is not supported; supported: default, "
      + ", ".join(needs)
    )
  missing = [name for name in needs[kind] if rope.get(name) is None]
  if missing:
    raise ValueError(f"rope scaling {kind!r} lacks {', '.join(missing)}")
  values = {ours: rope[name] for name, ours in needs[kind].items()}
  return float(theta), RopeScaling(kind=kind, **values)
