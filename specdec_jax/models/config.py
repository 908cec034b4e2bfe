"""The shape of a model, read from a Hugging Face config.json."""

import dataclasses
import reprlib
from collections.abc import Callable, Iterable, Mapping
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
_LARGEST = 2**31 - 1  # positions and sizes are 32-bit integers on the device
_REPR = reprlib.Repr()  # cuts what is long
_REPR.maxstring = _REPR.maxother = 60


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
    faults = _misfits(self.num_heads, self.num_kv_heads, self.head_dim)
    if faults:
      raise ValueError("; ".join(faults))

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


class _Fields:
  """Reads the fields of an object, each of the kind that is expected.

  What is missing or wrong is added to `faults` and read as nothing (0, "", ..),
  so that all faults are found at once. A field that is null is absent.
  """

  def __init__(
    self, values: Mapping[str, Any], faults: list[str], where: str = ""
  ):
    self._values = {k: v for k, v in values.items() if v is not None}
    self._where = where
    self.faults = faults

  def __contains__(self, name: str) -> bool:
    return name in self._values

  def contradict(self, *names: str) -> bool:
    """Whether two spellings of a field are given, with unequal values."""
    first, *others = [self._values[n] for n in names if n in self] or [None]
    return any(other != first for other in others)

  def _get(
    self,
    name: str,
    default: Any,
    nothing: Any,
    fits: Callable[[Any], bool],
    expected: str,
  ) -> Any:
    if name not in self._values:
      if default is None:
        self.faults.append(f"{self._where}{name} is missing")
      return nothing if default is None else default
    value = self._values[name]
    if fits(value):
      return value
    self.faults.append(
      f"{self._where}{name} is {_REPR.repr(value)}, expected {expected}"
    )
    return nothing

  def integer(
    self, name: str, default: int | None = None, least: int = 1
  ) -> int:
    """An integer of at least `least`."""

    def fits(value: Any) -> bool:
      return type(value) is int and least <= value <= _LARGEST

    kind = "a positive integer" if least else "an integer of 0 or more"
    return self._get(name, default, 0, fits, f"{kind}, at most {_LARGEST}")

  def number(self, name: str, default: float | None = None) -> float:
    """A number above 0. float32 holds it, and its reciprocal as well."""

    def fits(value: Any) -> bool:
      return type(value) in (int, float) and 1e-30 <= value <= 1e30

    expected = "a positive finite number"
    return float(self._get(name, default, 0.0, fits, expected))

  def boolean(self, name: str) -> bool:
    """False if absent."""
    return self._get(
      name, False, False, lambda value: type(value) is bool, "true or false"
    )

  def choice(self, name: str, default: str, options: Iterable[str]) -> str:
    """One of some words; "" if it is none of them."""

    def fits(value: Any) -> bool:
      return isinstance(value, str) and value in options

    expected = f"one of {', '.join(options)}"
    return self._get(name, default, "", fits, expected)

  def words(self, name: str) -> list[str]:
    """A list of strings; empty if absent."""

    def fits(value: Any) -> bool:
      return isinstance(value, list) and all(isinstance(v, str) for v in value)

    return self._get(name, [], [], fits, "a list of strings")

  def fields(self, name: str) -> "_Fields":
    """The fields of an object in this one; none if absent."""

    def fits(value: Any) -> bool:
      return isinstance(value, Mapping)

    values = self._get(name, {}, {}, fits, "an object")
    return _Fields(values, self.faults, f"{self._where}{name}.")


def from_hf(config: Mapping[str, Any]) -> ModelConfig:
  """Reads the dictionary of a config.json.

  Spellings of transformers 4 and 5 are both understood.

  Raises:
    ValueError: an architecture that is not supported; or else all fields that
      are missing, wrong or not supported, at once.
  """
  faults: list[str] = []
  family = _family(config)
  given = {name: value for name, value in config.items() if value is not None}
  fields = _Fields({**family.defaults, **given}, faults)

  def flag(value: bool | str) -> bool:
    return fields.boolean(value) if isinstance(value, str) else value

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
  faults += _misfits(heads, kv_heads, head_dim)
  theta, scaling = _rope(fields)
  _refuse_windows(fields, num_layers)
  values: dict[str, Any] = {
    "vocab_size": fields.integer("vocab_size"),
    "mlp_size": fields.integer("intermediate_size"),
    "rms_norm_eps": fields.number("rms_norm_eps", 1e-6),
    "max_length": fields.integer("max_position_embeddings"),
    "tied": fields.boolean("tie_word_embeddings"),
    "qkv_bias": flag(family.qkv_bias),
    "out_bias": flag(family.out_bias),
    "mlp_bias": flag(family.mlp_bias),
  }
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
    rope_theta=theta,
    rope_scaling=scaling,
    qk_norm=family.qk_norm,
    activation=_ACTIVATIONS[activation],
    **values,
  )


def _family(config: Mapping[str, Any]) -> families.Family:
  """What decides how the other fields are read."""
  faults: list[str] = []
  names = _Fields(config, faults).words("architectures")
  for name in names:
    if name in families.FAMILIES:
      return families.FAMILIES[name]
  reason = "; ".join(faults) or (
    f"architectures {_REPR.repr(names)} are not supported"
  )
  raise ValueError(
    f"config.json: {reason}; supported: {', '.join(sorted(families.FAMILIES))}"
  )


def _misfits(heads: int, kv_heads: int, head_dim: int) -> list[str]:
  """Why these numbers make no attention; 0 is one that is not known."""
  faults = []
  if kv_heads and heads % kv_heads:
    faults.append(
      f"{heads} query heads do not divide over {kv_heads} key-value heads"
    )
  if head_dim % 2:
    faults.append(f"RoPE needs an even head_dim, got {head_dim}")
  return faults


def _refuse_windows(fields: _Fields, num_layers: int) -> None:
  """Adds a fault if a layer of the model attends to a window only."""
  other = set(fields.words("layer_types")) - {"full_attention"}
  if other:
    fields.faults.append(
      f"layer_types {_REPR.repr(sorted(other))} are not supported yet"
    )
  if "layer_types" in fields or not fields.boolean("use_sliding_window"):
    return
  # Qwen2: the first max_window_layers layers see everything all the same.
  if fields.integer("max_window_layers", 0, least=0) < num_layers:
    fields.faults.append(
      "use_sliding_window is true: sliding windows are not supported yet"
    )


def _rope(fields: _Fields) -> tuple[float, RopeScaling | None]:
  """Base and scaling, from `rope_parameters` or its older spellings."""
  name = "rope_parameters" if "rope_parameters" in fields else "rope_scaling"
  rope = fields.fields(name)
  if fields.contradict("rope_parameters", "rope_scaling"):
    fields.faults.append("rope_parameters and rope_scaling differ")

  def either(name: str) -> _Fields:
    return rope if name in rope else fields

  theta = either("rope_theta").number("rope_theta")
  partial = "partial_rotary_factor"
  if either(partial).number(partial, 1.0) not in (0.0, 1.0):
    fields.faults.append(f"{partial} other than 1 is not supported")
  kind = rope.choice(
    "type" if "rope_type" not in rope else "rope_type",
    "default",
    ("default", "linear", "llama3"),
  )
  if kind == "linear":
    return theta, RopeScaling(kind, rope.number("factor"))
  if kind == "llama3":
    scaling = RopeScaling(
      kind,
      rope.number("factor"),
      rope.number("low_freq_factor"),
      rope.number("high_freq_factor"),
      rope.integer("original_max_position_embeddings"),
    )
    if 0 < scaling.high_freq_factor <= scaling.low_freq_factor:
      fields.faults.append(
        f"{name}.high_freq_factor is {scaling.high_freq_factor}, expected "
        f"more than low_freq_factor, {scaling.low_freq_factor}"
      )
    return theta, scaling
  return theta, None
