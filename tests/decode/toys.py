"""Models and drafters whose behaviour a test can dictate."""

import dataclasses
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
import tokenizers
import transformers

from specdec_jax.arrays import window
from specdec_jax.loading.token_bytes import byte_alphabet
from specdec_jax.loading.tokenizer import Tokenizer
from specdec_jax.models.config import ModelConfig
from specdec_jax.models.language_model import LanguageModel
from specdec_jax.models.transformer import TransformerNetwork, random_params
from specdec_jax.sampling import LOG_ZERO, SamplingParams
from specdec_jax.sharding import make_mesh
from specdec_jax.testing import NextLaw, Tokens
from specdec_jax.types import Array, Features, Proposal, PyTree, View

_GEMMA = {
  "norm_offset": 1,
  "post_norms": True,
  "scaled_embed": True,
  "activation": "gelu_tanh",
  "window": 6,
  "full_layers": (1,),
}
# Windows are shorter than what the tests generate.
FAMILIES = {
  "llama": {"architecture": "LlamaForCausalLM"},
  "mistral": {"architecture": "MistralForCausalLM", "window": 6},
  "qwen2": {
    "architecture": "Qwen2ForCausalLM",
    "qkv_bias": True,
    "tied": True,
  },
  "qwen3": {"architecture": "Qwen3ForCausalLM", "qk_norm": True},
  "gemma2": {
    **_GEMMA,
    "architecture": "Gemma2ForCausalLM",
    "score_cap": 2.0,
    "logit_cap": 5.0,
  },
  "gemma3": {
    **_GEMMA,
    "architecture": "Gemma3ForCausalLM",
    "qk_norm": True,
    "local_rope_theta": 50.0,
  },
  "gpt2": {
    "architecture": "GPT2LMHeadModel",
    "rope_theta": None,
    "layer_norm": True,
    "gated_mlp": False,
    "qkv_bias": True,
    "out_bias": True,
    "mlp_bias": True,
    "tied": True,
  },
}
TINY_VOCAB = 61


def tiny(
  family: str = "llama", seed: int = 0, layers: int = 1
) -> LanguageModel:
  """A transformer with random weights, in float32."""
  shape = {
    "vocab_size": TINY_VOCAB,
    "num_layers": layers,
    "hidden_size": 32,
    "mlp_size": 48,
    "num_heads": 4,
    "num_kv_heads": 2,
    "head_dim": 8,
    "rope_theta": 1e4,
    "max_length": 512,
  }
  config = ModelConfig(**shape | FAMILIES[family])
  network = TransformerNetwork(config, "float32")
  # One name for all: programs are shared between models of one shape.
  return _model(network, random_params(network, seed), name="tiny")


def perturbed(model: LanguageModel, scale: float, seed: int) -> LanguageModel:
  """A model that agrees with `model` often, and errs in its own way."""
  params = {}
  for i, (path, weight) in enumerate(sorted(model.params.items())):
    noise = np.random.default_rng((seed, i)).standard_normal(weight.shape)
    params[path] = weight + scale * float(weight.std()) * jnp.asarray(
      noise, weight.dtype
    )
  return dataclasses.replace(model, params=params)


@dataclasses.dataclass(frozen=True)
class ScriptNetwork:
  """A model with logits by row and position, whatever the text is.

  Its weights are the logits, `[B, P, V]`; entry i is for token i + 1.
  """

  vocab_size: int
  max_length: int = 4096
  min_rows: int = 1
  cache_axes: tuple[str | None, ...] = ()

  def init_cache(self, batch: int, slots: int) -> PyTree:
    return jnp.zeros((batch, slots), jnp.int32)

  def forward(
    self,
    params: PyTree,
    tokens_BT: Array,
    start_B: Array,
    cache: PyTree,
    taps: tuple[int, ...] = (),
  ) -> tuple[Array, Array, PyTree]:
    logits_BTV = window(params, start_B, tokens_BT.shape[1])
    return logits_BTV, logits_BTV[..., :0], cache

  def head(self, params: PyTree, hidden_BTD: Array) -> Array:
    return hidden_BTD


def script_model(logits_BPV: np.ndarray, eos_ids: Tokens = ()) -> LanguageModel:
  """A target, or a draft, that follows a script."""
  network = ScriptNetwork(logits_BPV.shape[-1])
  return _model(network, jnp.asarray(logits_BPV, jnp.float32), eos_ids)


def apart(params: Sequence[SamplingParams]) -> list[SamplingParams]:
  """The same, no two of them equal.

  Requests that differ in their seeds alone share a prefill, of fewer rows than
  a script has.
  """
  return [
    dataclasses.replace(p, min_p=1e-9 * row) for row, p in enumerate(params)
  ]


def certain(tokens_BP: np.ndarray, vocab_size: int) -> np.ndarray:
  """Logits `[B, P, V]` under which token i + 1 can only be tokens[i + 1]."""
  next_BP = np.roll(tokens_BP, -1, axis=1)
  return np.where(np.eye(vocab_size)[next_BP] > 0, 0, LOG_ZERO)


@dataclasses.dataclass(frozen=True)
class ScriptedDrafter:
  """Drafts what a script says, as picks.

  `script` is the tokens by row and position, and how many of them a block
  drafts that starts at each position.
  """

  num_draft_tokens: int
  script: tuple[Array, Array] | None = dataclasses.field(compare=False)

  taps = ()
  max_length = None
  cache_axes = ()

  def bind(self, target: LanguageModel) -> "ScriptedDrafter":
    return self

  def split(self) -> tuple["ScriptedDrafter", PyTree]:
    return dataclasses.replace(self, script=None), self.script

  def init(self, batch: int, slots: int) -> PyTree:
    return ()

  def observe(
    self, params: PyTree, draft: PyTree, view: View, features: Features
  ) -> PyTree:
    return draft

  def propose(
    self, params: PyTree, draft: PyTree, view: View
  ) -> tuple[Proposal, PyTree]:
    tokens_BP, count_BP = params
    tokens_BK = window(tokens_BP, view.length_B, self.num_draft_tokens)
    count_B = window(count_BP, view.length_B, 1)[:, 0]
    return Proposal(tokens_BK, count_B, None), draft


def prompts(lengths: Sequence[int], seed: int = 0) -> list[list[int]]:
  """Random prompts for the tiny transformers."""
  rng = np.random.default_rng(seed)
  return [rng.integers(0, TINY_VOCAB, n).tolist() for n in lengths]


def greedy_text(
  model: LanguageModel, prompt: list[int], count: int
) -> list[int]:
  """Greedy decoding by definition: the whole text again for each token."""
  text = list(prompt)
  for _ in range(count):
    text.append(int(np.argmax(model.logits(text)[-1])))
  return text[len(prompt) :]


def table_law(
  table_VVV: np.ndarray,
  params: SamplingParams,
  prompt: Tokens,
  eos_ids: Tokens = (),
) -> NextLaw:
  """The law of a table model after `prompt`, from first principles."""
  size = table_VVV.shape[-1]
  table_VVV = np.broadcast_to(table_VVV, (size, size, size))

  def law(text: Tokens) -> np.ndarray:
    *_, older, newest = (0, *prompt, *text)
    with np.errstate(divide="ignore"):
      logits_V = np.log(table_VVV[older, newest])
    logits_V = controlled(logits_V, params, prompt, text, eos_ids)
    law_V = np.exp(logits_V - logits_V.max())
    return filtered(law_V / law_V.sum(), params)

  return law


def controlled(
  logits_V: np.ndarray,
  params: SamplingParams,
  prompt: Sequence[int],
  text: Sequence[int],
  eos_ids: Tokens,
) -> np.ndarray:
  """The definition of penalties, biases and bans, token by token."""
  logits_V = np.array(logits_V, float)
  for token in range(len(logits_V)):
    logit = logits_V[token] + dict(params.logit_bias).get(token, 0.0)
    if token in prompt or token in text:
      factor = params.repetition_penalty
      logit = logit / factor if logit > 0 else logit * factor
    count = list(text).count(token)
    logit -= params.frequency_penalty * count
    logit -= params.presence_penalty * (count > 0)
    allowed = params.allowed_token_ids
    early = len(text) < params.min_new_tokens and token in eos_ids
    banned = early or not (allowed is None or token in allowed)
    logits_V[token] = -np.inf if banned else logit
  return logits_V


def filtered(law_V: np.ndarray, params: SamplingParams) -> np.ndarray:
  """The definition of the sampling parameters, in float64 by sorting."""
  if params.temperature == 0:
    return np.eye(len(law_V))[np.argmax(law_V)]
  law_V = law_V ** (1 / params.temperature)
  if params.top_k:
    law_V = np.where(law_V >= np.sort(law_V)[-params.top_k :][0], law_V, 0)
  law_V = law_V / law_V.sum()
  descending = np.sort(law_V)[::-1]
  before = np.cumsum(descending) - descending
  law_V = np.where(law_V >= descending[before < params.top_p][-1], law_V, 0)
  law_V = np.where(law_V >= params.min_p * law_V.max(), law_V, 0)
  return law_V / law_V.sum()


def _model(network, params, eos_ids: Tokens = (), name: str = "toy"):
  return LanguageModel(
    network=network,
    params=params,
    tokenizer=None,
    eos_ids=eos_ids,
    mesh=make_mesh(),
    name=name,
  )


def byte_tokenizer(pieces: Sequence[bytes], eos: str = "<eos>") -> Tokenizer:
  """A byte-level tokenizer of these tokens and, last, an end of sequence."""
  alphabet = {byte: char for char, byte in byte_alphabet().items()}
  names = ["".join(alphabet[byte] for byte in piece) for piece in pieces]
  vocab = {name: i for i, name in enumerate([*names, eos])}
  tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, []))
  tokenizer.decoder = tokenizers.decoders.ByteLevel()
  return Tokenizer(
    transformers.PreTrainedTokenizerFast(
      tokenizer_object=tokenizer, eos_token=eos
    )
  )
