"""Assisted generation of transformers on the same prompts, to compare with.

The only file that needs torch. Its settings are those of this library's cells:
K drafts in every block, whatever their confidence, and no warper but the
temperature.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specdec_jax.bench.cells import Cell
from specdec_jax.bench.ways import Limits, Run, Way

_WARM_UP_TOKENS = 8
_INSTALL = "pip install 'specdec_jax[torch]'"


class Transformers:
  """A pair as transformers runs it, on the CPU."""

  def __init__(
    self,
    *,
    target: Path,
    draft: Path | None,
    dtype: str,
    limits: Limits,
    max_ngram: int,
  ):
    """Loads the models.

    Args:
      target: its folder, a Hugging Face checkpoint.
      draft: of the draft; None where no cell wants it.
      dtype: of weights and activations.
      limits: where texts end.
      max_ngram: of the newest tokens, how many lookup compares at most.

    Raises:
      ValueError: torch is not installed, or a folder cannot be read.
    """
    check_installed()
    self._target = _load(target, dtype)
    self._draft = None if draft is None else _load(draft, dtype)
    self._limits = limits
    self._max_ngram = max_ngram

  def way(self, cell: Cell) -> Way:
    """How it runs a cell.

    Raises:
      ValueError: the cell drafts with a model and there is none.
    """
    extra: dict[str, Any] = {}
    if cell.drafter == "model":
      if self._draft is None:
        raise ValueError("drafter model: expected a draft model, got none")
      extra["assistant_model"] = self._draft
    elif cell.drafter == "lookup":
      extra["prompt_lookup_num_tokens"] = cell.num_draft_tokens
      extra["max_matching_ngram_size"] = self._max_ngram
    return _Way(self._target, cell, self._limits, extra)


def check_installed() -> None:
  """Raises ValueError where torch is not there."""
  try:
    import torch  # noqa: F401
  except ImportError as error:
    raise ValueError(
      f"the peer transformers needs torch ({error}); install it: {_INSTALL}"
    ) from None


def _load(folder: Path, dtype: str) -> Any:
  import torch
  import transformers

  transformers.utils.logging.disable_progress_bar()
  try:
    return transformers.AutoModelForCausalLM.from_pretrained(
      folder, dtype=getattr(torch, dtype), local_files_only=True
    ).eval()
  except (KeyError, OSError, ValueError) as error:
    raise ValueError(f"transformers cannot load {folder}: {error}") from error


class _Way:
  """A cell, warm after its first run."""

  def __init__(
    self, target: Any, cell: Cell, limits: Limits, extra: dict[str, Any]
  ):
    self._target, self._cell, self._extra = target, cell, extra
    self._limits = limits
    self._warm = False

  def run(self, prompts: Sequence[Sequence[int]], seeds: Sequence[int]) -> Run:
    (prompt,), (seed,) = prompts, seeds
    compile_seconds = 0.0
    if not self._warm:
      begin = time.perf_counter()
      self._generate(prompt, seed, _WARM_UP_TOKENS)
      compile_seconds = time.perf_counter() - begin
      self._warm = True
    watch = _Watch()
    hook = self._target.register_forward_hook(watch.count)
    begin = time.perf_counter()
    try:
      tokens = self._generate(prompt, seed, self._limits.max_new_tokens, watch)
    finally:
      hook.remove()
    end = time.perf_counter()
    # The pass over the prompt brings the first tokens: they count with it.
    return Run(
      tokens=[tokens],
      slots=None,
      row_passes=watch.passes,
      drafted=(),
      accepted=(),
      prefill=watch.first_time - begin,
      first_token=watch.first_time - begin,
      decode=end - watch.first_time,
      decode_tokens=len(tokens) - watch.first_count,
      steps=watch.passes - 1,
      compile=compile_seconds,
      finish_reasons=(),
    )

  def _generate(
    self,
    prompt: Sequence[int],
    seed: int,
    max_new_tokens: int,
    watch: "_Watch | None" = None,
  ) -> list[int]:
    import torch
    import transformers

    theirs = self._target.generation_config
    config = transformers.GenerationConfig(
      max_new_tokens=max_new_tokens,
      eos_token_id=None if self._limits.ignore_eos else theirs.eos_token_id,
      pad_token_id=theirs.pad_token_id or 0,
      do_sample=self._cell.temperature > 0,
      **self._law(),
    )
    draft = self._extra.get("assistant_model")
    if draft is not None:
      # It reads them from the draft's own.
      draft.generation_config.num_assistant_tokens = self._cell.num_draft_tokens
      draft.generation_config.num_assistant_tokens_schedule = "constant"
      draft.generation_config.assistant_confidence_threshold = 0.0
    torch.manual_seed(seed)
    tokens_BT = torch.tensor([list(prompt)])
    with torch.inference_mode():
      out_BS = self._target.generate(
        tokens_BT,
        attention_mask=torch.ones_like(tokens_BT),
        generation_config=config,
        streamer=watch,
        **self._extra,
      )
    return out_BS[0, len(prompt) :].tolist()

  def _law(self) -> dict[str, Any]:
    if not self._cell.temperature:
      return {}
    return {"temperature": self._cell.temperature, "top_k": 0, "top_p": 1.0}


class _Watch:
  """Sees passes and tokens as they come; a streamer of transformers.

  Attributes:
    passes: of the target.
    first_time: when the first new tokens came.
    first_count: how many they were.
  """

  def __init__(self) -> None:
    self.passes = 0
    self.first_time = 0.0
    self.first_count = 0
    self._puts = 0

  def count(self, *_: Any) -> None:
    """Counts a pass; a hook of the target."""
    self.passes += 1

  def put(self, tokens: Any) -> None:
    """Takes the prompt, and then what comes."""
    self._puts += 1
    if self._puts == 2:
      self.first_time = time.perf_counter()
      self.first_count = tokens.numel()

  def end(self) -> None:
    """Nothing is left to do."""
