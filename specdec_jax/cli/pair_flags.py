"""The flags that say which models run, and how drafters use them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
from absl import flags

import specdec_jax as sd
from specdec_jax.bench.ways import Pair
from specdec_jax.cli import mesh_flag
from specdec_jax.cli.terminal import Terminal
from specdec_jax.drafters.draft_model import VOCABULARIES
from specdec_jax.loading import embedded

# All are verified in one pass, and its logits are [B, K + 1, V].
MOST_DRAFT_TOKENS = 1024
_MOST_NGRAM = 64  # each length compiles code of its own


class PairFlags:
  """Flags of every command that runs a target with drafters.

  Attributes:
    models: the flags of the models, for the help.
    drafting: those of how drafters draft.
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
    self._mesh = mesh_flag.define_mesh(values)
    self._draft_sharding = mesh_flag.define_draft_sharding(values)
    self.devices = (self._mesh, self._draft_sharding)
    self.models = (self._target, self._draft, self._dtype, self._quantize)
    self.drafting = (
      self._max_ngram,
      self._min_confidence,
      self._draft_vocabulary,
    )

  def check_models(self, drafters: Sequence[str]) -> None:
    """Checks what costs nothing to check, before models are loaded.

    Args:
      drafters: those that are wanted, of "model", "lookup" and "none".

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
    for flag, drafter in (
      (self._max_ngram, "lookup"),
      (self._min_confidence, "model"),
      (self._draft_vocabulary, "model"),
      (self._draft_sharding, "model"),
    ):
      if flag.present and drafter not in drafters:
        raise ValueError(
          f"--{flag.name} is not for --drafter={','.join(drafters)}, only for "
          f"{drafter}; leave it out"
        )
    if self._max_ngram.value > _MOST_NGRAM:
      raise ValueError(
        f"--max_ngram: expected at most {_MOST_NGRAM}, got "
        f"{self._max_ngram.value}"
      )
    if not 0 <= self._min_confidence.value <= 1:
      raise ValueError(
        "--min_confidence: expected a probability in [0, 1], got "
        f"{self._min_confidence.value}"
      )
    if "model" in drafters and not self.draft:
      raise ValueError(
        "--drafter=model: expected a draft model, got none; give --draft"
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

  def drafter_arguments(self, drafter: str) -> dict[str, Any]:
    """Of a drafter's class, its model and K apart."""
    if drafter == "model":
      return {
        "min_confidence": self._min_confidence.value,
        "vocabulary": self._draft_vocabulary.value,
      }
    if drafter == "lookup":
      return {"max_ngram": self._max_ngram.value}
    return {}

  def model_settings(self) -> dict[str, Any]:
    """Which models, for files that are gone on with."""
    return {
      "target": self.target,
      "draft": self.draft,
      "dtype": self.dtype,
      "quantize": self._quantize.value,
    }

  def pair_settings(self) -> dict[str, Any]:
    """The same, and how both drafters draft."""
    return {
      **self.model_settings(),
      "draft_vocabulary": self._draft_vocabulary.value,
      "min_confidence": self._min_confidence.value,
      "max_ngram": self._max_ngram.value,
    }

  def given(self) -> list[str]:
    """The flags that were given, as a command has them."""
    return [
      f"--{flag.name}={flag.value}"
      for flag in (*self.models, *self.drafting, *self.devices)
      if flag.present
    ]

  def folder(self, model: str) -> Path:
    """Where a model lies, "target" or "draft", for who reads it himself.

    Raises:
      ValueError: it is in no folder.
    """
    name = self.target if model == "target" else self.draft
    assert name is not None  # the flags were checked
    if name.startswith(embedded.PREFIX):
      return embedded.folder(name)
    path = Path(name).expanduser()
    if not (path / "config.json").is_file():
      raise ValueError(
        f"--{model}: expected a folder with a Hugging Face checkpoint for "
        f"--peer, got {name}"
      )
    return path

  def pair(
    self, target: sd.LanguageModel, draft: sd.LanguageModel | None
  ) -> Pair:
    """The models and how drafters draft, for a benchmark."""
    return Pair(
      target,
      draft,
      self._draft_vocabulary.value,
      self._min_confidence.value,
      self._max_ngram.value,
    )

  def load_models(
    self, shown: Terminal, with_draft: bool
  ) -> tuple[sd.LanguageModel, sd.LanguageModel | None]:
    """Loads target and draft.

    Args:
      shown: told where no model is named.
      with_draft: whether the draft is wanted.
    """
    mesh = mesh_flag.parse_mesh(self._mesh.value)
    target, draft = self.target, self.draft if with_draft else None
    assert target is not None  # the flags were checked
    if self._unnamed:
      names = " and ".join(filter(None, (target, draft)))
      shown.note(f"no model named: using {names}")
    # The draft first, since what is small fails sooner.
    loaded = draft and self._load(draft, mesh, self._draft_sharding.value)
    return self._load(target, mesh, "model"), loaded or None

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
