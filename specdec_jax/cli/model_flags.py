"""The flags that say which models run, and how they speculate."""

from typing import Any

import jax
from absl import flags

import specdec_jax as sd
from specdec_jax.acceptance import LOSSY, named_rule
from specdec_jax.cli import mesh_flag
from specdec_jax.cli.terminal import Terminal
from specdec_jax.drafters.draft_model import VOCABULARIES
from specdec_jax.loading import embedded
from specdec_jax.types import Drafter

# All are verified in one pass, and its logits are [B, K + 1, V].
_MOST_DRAFT_TOKENS = 1024
_MOST_NGRAM = 64  # each length compiles code of its own


class ModelFlags:
  """Flags of every command that runs a target with a drafter.

  Attributes:
    models: the flags of the models, for the help.
    speculation: those of the drafter and the rule.
    devices: those of the mesh.
  """

  def __init__(self, values: flags.FlagValues):
    self._target = flags.DEFINE_string(
      "target",
      None,
      "The model whose text is wanted. Where neither it nor --draft is given, "
      f"both are those that come with the package, {embedded.TARGET} and "
      f"{embedded.DRAFT}: small ones for Python source.",
      flag_values=values,
    )
    self._draft = flags.DEFINE_string(
      "draft",
      None,
      "A smaller model, to guess what comes.",
      flag_values=values,
    )
    self._draft_vocabulary = flags.DEFINE_enum(
      "draft_vocabulary",
      "same",
      VOCABULARIES,
      "Whether the draft must have the target's tokenizer, or may have another "
      "one and guess the tokens that both have.",
      flag_values=values,
    )
    self._dtype = flags.DEFINE_enum(
      "dtype",
      None,
      ["bfloat16", "float32"],
      "Of weights and activations; by default float32 for an embedded target, "
      "else bfloat16.",
      flag_values=values,
    )
    self._quantize = flags.DEFINE_enum(
      "quantize",
      None,
      ["int8"],
      "Keep the weights of both models in 8 bits, half the memory of bfloat16. "
      "It costs precision: the text follows the quantised target's "
      "distribution, not the original's. On a CPU it costs time too.",
      flag_values=values,
    )
    self._drafter = flags.DEFINE_enum(
      "drafter",
      None,
      ["model", "lookup", "none"],
      "Where guesses come from: --draft, copies of what followed the same "
      "words earlier in the text, or nowhere (plain decoding). By default "
      "model if there is a draft, else none.",
      flag_values=values,
    )
    self._num_draft_tokens = flags.DEFINE_integer(
      "num_draft_tokens",
      None,
      "K, the most tokens guessed at a time; by default 4 with a draft model, "
      "8 with lookup.",
      flag_values=values,
    )
    self._max_ngram = flags.DEFINE_integer(
      "max_ngram",
      3,
      "How many of the newest tokens lookup compares at most.",
      flag_values=values,
    )
    self._min_confidence = flags.DEFINE_float(
      "min_confidence",
      0.0,
      "The draft model stops guessing where its largest probability is below "
      "this.",
      flag_values=values,
    )
    self._rule = flags.DEFINE_string(
      "rule",
      "block",
      "How guesses are accepted: block, token, gumbel (the very tokens of "
      "plain gumbel sampling with the same seed), or one of the lossy "
      f"{', '.join(LOSSY)}. All are one at temperature 0.",
      flag_values=values,
    )
    self._mesh = mesh_flag.define_mesh(values)
    self._draft_sharding = mesh_flag.define_draft_sharding(values)
    self.devices = (self._mesh, self._draft_sharding)
    self.models = (self._target, self._draft, self._dtype, self._quantize)
    self.speculation = (
      self._drafter,
      self._num_draft_tokens,
      self._max_ngram,
      self._min_confidence,
      self._draft_vocabulary,
      self._rule,
    )

  def check(self) -> None:
    """Checks what costs nothing to check, before models are loaded.

    Raises:
      ValueError: flags do not go together, or a value is out of range.
    """
    if not self.target:
      raise ValueError(
        "--target: expected a folder or a hub id, got none; give "
        "--target=MODEL; without --target and --draft it is the embedded pair"
      )
    if self.draft == "":
      raise ValueError(
        "--draft: expected a folder or a hub id, got nothing; give "
        "--draft=MODEL or leave the flag out"
      )
    try:
      named_rule(self._rule.value)
    except ValueError as error:
      raise ValueError(f"--{error}") from error
    self._check_drafter_flags()
    if self.drafter == "model":
      if not self.draft:
        raise ValueError(
          "--drafter=model: expected a draft model, got none; give --draft"
        )
      if self._arguments().get("num_draft_tokens", 1) < 1:
        raise ValueError(
          "--num_draft_tokens: expected at least 1 with a draft model, got "
          f"{self._num_draft_tokens.value}; --drafter=none is plain decoding"
        )
    if self.drafter == "lookup":
      sd.PromptLookup(**self._arguments())  # raises if they are out of range

  def _check_drafter_flags(self) -> None:
    for flag, drafters in (
      (self._num_draft_tokens, ("model", "lookup")),
      (self._max_ngram, ("lookup",)),
      (self._min_confidence, ("model",)),
      (self._draft_vocabulary, ("model",)),
      (self._draft_sharding, ("model",)),
    ):
      if flag.present and self.drafter not in drafters:
        raise ValueError(
          f"--{flag.name} is not for --drafter={self.drafter}, only for "
          f"{' and '.join(drafters)}; leave it out"
        )
    for flag, most in (
      (self._num_draft_tokens, _MOST_DRAFT_TOKENS),
      (self._max_ngram, _MOST_NGRAM),
    ):
      if flag.value is not None and flag.value > most:
        raise ValueError(
          f"--{flag.name}: expected at most {most}, got {flag.value}"
        )
    if not 0 <= self._min_confidence.value <= 1:
      raise ValueError(
        "--min_confidence: expected a probability in [0, 1], got "
        f"{self._min_confidence.value}"
      )

  @property
  def _unnamed(self) -> bool:
    """Whether no model is named: the embedded pair it is."""
    return self._target.value is None and self._draft.value is None

  @property
  def target(self) -> str | None:
    """The model whose text is wanted."""
    return embedded.TARGET if self._unnamed else self._target.value

  @property
  def draft(self) -> str | None:
    """The model that guesses, if `drafter` is "model"."""
    return embedded.DRAFT if self._unnamed else self._draft.value

  @property
  def dtype(self) -> str:
    """Of weights and activations."""
    # The embedded pair is so small that float32, in which the same tokens are
    # meant literally, costs nothing; on a CPU it is the faster one.
    is_embedded = (self.target or "").startswith(embedded.PREFIX)
    return self._dtype.value or ("float32" if is_embedded else "bfloat16")

  @property
  def drafter(self) -> str:
    """Where guesses come from: "model", "lookup" or "none"."""
    return self._drafter.value or ("model" if self.draft else "none")

  def _arguments(self) -> dict[str, Any]:
    """Of the drafter's class, a model apart."""
    arguments: dict[str, Any] = {}
    if self._num_draft_tokens.value is not None:
      arguments["num_draft_tokens"] = self._num_draft_tokens.value
    if self.drafter == "model":
      arguments["min_confidence"] = self._min_confidence.value
      arguments["vocabulary"] = self._draft_vocabulary.value
    elif self.drafter == "lookup":
      arguments["max_ngram"] = self._max_ngram.value
    return arguments

  def settings(self) -> dict[str, Any]:
    """What the text depends on, for files that are gone on with."""
    return {
      "target": self.target,
      "draft": self.draft,
      "dtype": self.dtype,
      "quantize": self._quantize.value,
      "drafter": self.drafter,
      "rule": self._rule.value,
      **self._arguments(),
    }

  def load(self, shown: Terminal) -> sd.SpeculativeDecoder:
    """Loads the models; the draft first, since what is small fails sooner."""
    mesh = mesh_flag.parse_mesh(self._mesh.value)
    target, draft = self.target, self.draft
    assert target is not None  # the flags were checked
    if self._unnamed:
      names = (target, draft) if self.drafter == "model" else (target,)
      shown.note(f"no model named: using {' and '.join(filter(None, names))}")
    drafter: Drafter = sd.NoDraft()
    if self.drafter == "model":
      assert draft is not None  # the flags were checked
      drafter = sd.DraftModel(
        self._load(draft, mesh, self._draft_sharding.value),
        **self._arguments(),
      )
    elif self.drafter == "lookup":
      drafter = sd.PromptLookup(**self._arguments())
    if self._rule.value in LOSSY:
      shown.note(
        f"--rule={self._rule.value} is lossy: above temperature 0 the text "
        "does not follow the target's distribution"
      )
    if self._draft.value and self.drafter != "model":
      shown.note(f"--draft is not used with --drafter={self.drafter}")
    elif self.drafter == "none" and not self._drafter.present:
      shown.note(
        "plain decoding; --draft=MODEL or --drafter=lookup would speculate"
      )
    return sd.SpeculativeDecoder(
      self._load(target, mesh, "model"), drafter, rule=self._rule.value
    )

  def _load(
    self, model: str, mesh: jax.sharding.Mesh, layout: str
  ) -> sd.LanguageModel:
    return sd.load(
      model,
      dtype=self.dtype,
      quantize=self._quantize.value,
      mesh=mesh,
      layout=layout,
    )
