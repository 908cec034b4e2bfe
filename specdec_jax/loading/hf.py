"""Hugging Face models: a folder of safetensors files, or an id of the hub.

Pickles are never read: they can run code.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import safetensors

from specdec_jax.loading.checkpoint import Checkpoint, Tensor
from specdec_jax.loading.source import read_json

# What is downloaded: weights as safetensors, and never code or pickles.
_HUB_FILES = (
  "config.json",
  "generation_config.json",
  "model*.safetensors",
  "model.safetensors.index.json",
  "tokenizer*.json",
  "tokenizer.model",
  "special_tokens_map.json",
  "added_tokens.json",
  "vocab.json",
  "merges.txt",
  "chat_template.*",
)
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


def download(name: str, files: Sequence[str] = _HUB_FILES) -> Path:
  """Gets a model from the hub, or some of its files. Returns their folder.

  Raises:
    ValueError: the name is none of the hub's, or it cannot be had.
  """
  if not _HUB_ID.fullmatch(name):
    raise ValueError(f"no such folder: {name}")
  import huggingface_hub

  try:
    return Path(
      huggingface_hub.snapshot_download(name, allow_patterns=list(files))
    )
  except Exception as error:  # network, rights, names: all end here
    raise ValueError(
      f"no folder {name}, and it cannot be had from the Hugging Face hub: "
      f"{type(error).__name__}: {error}"
    ) from error


def open_folder(folder: Path) -> "SafetensorsFiles":
  """Opens the weights of a model's folder.

  Raises:
    ValueError: there are none, files that the index names are missing, or one
      is broken.
  """
  return SafetensorsFiles(_find_files(folder))


def _find_files(folder: Path) -> list[Path]:
  """The safetensors files of a model, in the order transformers prefers."""
  single = folder / "model.safetensors"
  index = folder / "model.safetensors.index.json"
  if single.is_file():
    return [single]
  if index.is_file():
    return _indexed(folder, index)
  files = sorted(folder.glob("*.safetensors"))
  if files:
    return files
  pickles = sorted(p.name for pattern in _PICKLES for p in folder.glob(pattern))
  if pickles:
    raise ValueError(
      f"{folder} has weights as pickles only ({', '.join(pickles[:3])}); "
      "pickles can run code and are never read. Convert them to safetensors"
    )
  raise ValueError(f"no *.safetensors in {folder}")


def _indexed(folder: Path, index: Path) -> list[Path]:
  weights = read_json(index).get("weight_map")
  if not isinstance(weights, dict) or not weights:
    raise ValueError(f"{index} has no weight_map")
  names = sorted({str(name) for name in weights.values()})
  outside = [name for name in names if Path(name).name != name]
  if outside:
    raise ValueError(
      f"{index} names files outside the folder: {_first(outside)}"
    )
  there = {path.name for path in folder.iterdir() if path.is_file()}
  missing = [name for name in names if name not in there]
  if missing:
    raise ValueError(
      f"{index} names {len(names)} files, of which {len(missing)} are "
      f"missing: {_first(missing)}"
    )
  return [folder / name for name in names]


def _first(names: list[str]) -> str:
  """The first names of a list that may be long, as may each of them."""
  return ", ".join(n if len(n) < 80 else n[:80] + ".." for n in names[:3])


class SafetensorsFiles(Checkpoint):
  """The tensors of some safetensors files."""

  readable = ("BF16", "F16", "F32")
  integer = "I32"

  def __init__(self, files: list[Path]):
    """Reads the headers.

    Raises:
      ValueError: a file is truncated or corrupt, or two hold one tensor.
    """
    self.tensors: dict[str, Tensor] = {}
    self._files: dict[str, Path] = {}
    for file in files:
      for name, tensor in _headers(file):
        if name in self._files:
          raise ValueError(
            f"{name} is in both {self._files[name].name} and {file.name}"
          )
        self.tensors[name] = tensor
        self._files[name] = file

  def _read(
    self, name: str, index: tuple[slice, ...], dtype: str
  ) -> np.ndarray:
    file = self._files[name]
    try:
      with safetensors.safe_open(file, framework="numpy") as opened:
        part = opened.get_slice(name)[index]
    except (safetensors.SafetensorError, OSError) as error:
      raise ValueError(f"cannot read {name} of {file}: {error}") from error
    return part if part.dtype == np.dtype(dtype) else part.astype(dtype)


def _headers(file: Path) -> Iterator[tuple[str, Tensor]]:
  try:
    with safetensors.safe_open(file, framework="numpy") as opened:
      for name in opened.keys():  # noqa: SIM118  (no iterator)
        part = opened.get_slice(name)
        yield name, Tensor(tuple(part.get_shape()), part.get_dtype())
  except (safetensors.SafetensorError, OSError) as error:
    raise ValueError(
      f"{file} is truncated, corrupt or not safetensors: {error}"
    ) from error
