"""A model where it is stored, whatever the format."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from specdec_jax.loading import tokenizer
from specdec_jax.loading.checkpoint import Checkpoint


@dataclasses.dataclass(frozen=True)
class Source:
  """What a format has to tell of a model.

  Attributes:
    name: what people call it.
    fields: what its config.json says, or would say.
    generation: the same for generation_config.json.
    weights: its tensors.
    read_tokenizer: reads its tokenizer, None if it has none. Takes a while.
  """

  name: str
  fields: Mapping[str, Any]
  generation: Mapping[str, Any]
  weights: Checkpoint
  read_tokenizer: Callable[[], tokenizer.Tokenizer | None]


def from_folder(
  folder: Path, name: str, open_weights: Callable[[Path], Checkpoint]
) -> Source:
  """A model in a folder with config.json and the files of a tokenizer.

  Args:
    folder: where it is.
    name: what people call it.
    open_weights: opens the weights of such a folder.

  Raises:
    ValueError: files are missing or broken, or the model is quantised.
  """
  fields = read_json(folder / "config.json")
  if quantised := fields.get("quantization_config"):
    known = isinstance(quantised, dict) and quantised.get("quant_method")
    raise ValueError(
      f"{name} is quantised ({known or 'method unknown'}); load the original "
      "weights instead"
    )
  generation = {}
  if (folder / "generation_config.json").is_file():
    generation = read_json(folder / "generation_config.json")

  def read_tokenizer() -> tokenizer.Tokenizer | None:
    if any((folder / name).is_file() for name in tokenizer.FILES):
      return tokenizer.Tokenizer.from_folder(folder)
    return None

  return Source(name, fields, generation, open_weights(folder), read_tokenizer)


def read_json(path: Path) -> dict[str, Any]:
  """Reads a JSON object.

  Raises:
    ValueError: the file is not there, cannot be read, or is no JSON object.
  """
  # A device or a pipe could be read forever.
  if not path.is_file():
    raise ValueError(f"no {path.name} in {path.parent}")
  try:
    value = json.loads(path.read_text(encoding="utf-8"))
  except OSError as error:
    raise ValueError(f"cannot read {path}: {error.strerror}") from error
  # Not UTF-8, no JSON, numbers of thousands of digits, or nested too deeply.
  except (ValueError, RecursionError) as error:
    raise ValueError(f"{path} is not JSON: {error}") from error
  if not isinstance(value, dict):
    raise ValueError(f"{path} holds {type(value).__name__}, expected an object")
  return value
