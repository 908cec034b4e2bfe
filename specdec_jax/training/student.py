"""The model that is trained: a fresh one, or one that is there already."""

import dataclasses
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from specdec_jax import sharding
from specdec_jax.loading import loader
from specdec_jax.loading.arrays import Arrays
from specdec_jax.loading.export import export
from specdec_jax.loading.source import Source, read_json
from specdec_jax.loading.tokenizer import Tokenizer
from specdec_jax.models import config as config_lib
from specdec_jax.models.language_model import LanguageModel
from specdec_jax.models.transformer import Params, TransformerNetwork
from specdec_jax.training.files import naming

_STANDARD_DEVIATION = 0.02
# They end a branch that is added to the residual stream.
_BRANCH_ENDS = ("attention.out.weight", "mlp.down.weight")


@dataclasses.dataclass(frozen=True)
class Student:
  """A model to be trained.

  Attributes:
    model: the model, its weights in float32.
    fields: its config.json.
    generation: its generation_config.json.
  """

  model: LanguageModel
  fields: Mapping[str, Any]
  generation: Mapping[str, Any]

  @property
  def config(self) -> config_lib.ModelConfig:
    """The shape of the model."""
    return self.network.config

  @property
  def network(self) -> TransformerNetwork:
    """The model without its weights."""
    return network_of(self.model)

  def source(self, params: Params) -> Source:
    """The model with these weights, as it is stored."""
    rows = {"vocab_size": self.config.known_rows}
    return Source(
      self.model.name,
      {**self.fields, **rows},
      self.generation,
      Arrays(self.config, params),
      lambda: self.model.tokenizer,
    )

  def write(self, folder: Path, params: Params) -> None:
    """Writes the model with these weights, for `load` and transformers.

    With a limited vocabulary it is for `load` alone.

    Files that are there already are replaced, each at once.

    Raises:
      OSError: they cannot be written; the old ones are still there.
    """
    source = self.source(params)
    for left in folder.glob("model.partial*"):  # behind by a kill
      shutil.rmtree(left)
    partial = folder / "model.partial"
    with naming(folder):
      export(source, partial, dtype="float32", progress=False)
    # config.json last: without it the folder is no model.
    for file in sorted(
      partial.iterdir(), key=lambda f: f.name == "config.json"
    ):
      os.replace(file, folder / file.name)
    partial.rmdir()


def network_of(model: LanguageModel) -> TransformerNetwork:
  """A model without its weights: students and teachers are transformers."""
  assert isinstance(model.network, TransformerNetwork)
  return model.network


def from_checkpoint(source: str, mesh: jax.sharding.Mesh) -> Student:
  """A model that is there already, wherever `load` finds one.

  Raises:
    ValueError: it cannot be loaded.
  """
  model = loader.load(source, dtype="float32", mesh=mesh)
  stored = loader.open_source(source)
  return Student(model, stored.fields, stored.generation)


def fresh(
  config: Path, tokenizer: Path, seed: int, mesh: jax.sharding.Mesh
) -> Student:
  """A model with random weights, as GPT-2's were.

  Args:
    config: a config.json.
    tokenizer: the folder of a tokenizer.
    seed: of the weights.
    mesh: where they lie.

  Raises:
    ValueError: a file is missing or broken, or the two do not fit together.
  """
  fields = read_json(config)
  reader = Tokenizer.from_folder(tokenizer)
  shape = config_lib.from_hf(fields)
  if shape.draft_vocab_size:
    raise ValueError(
      f"{config}: draft_vocab_size is for models that have been trained, whose "
      "tokens can be limited to those they need; leave it out"
    )
  if shape.vocab_size < reader.size:
    raise ValueError(
      f"{config}: vocab_size is {shape.vocab_size}, but the tokenizer in "
      f"{tokenizer} has {reader.size} tokens; expected at least as many"
    )
  if not reader.eos_ids:
    raise ValueError(
      f"the tokenizer in {tokenizer} names no end of sequence (eos_token)"
    )
  # As `load` does, so that the teacher's laws are over the same tokens.
  shape = shape.with_vocab(reader.size, sharding.vocab_rows(reader.size, mesh))
  network = TransformerNetwork(shape, "float32", mesh.devices.flat[0].platform)
  model = LanguageModel(
    network=network,
    params=_random_params(network, seed, mesh),
    tokenizer=reader,
    eos_ids=reader.eos_ids,
    mesh=mesh,
    name=str(config),
  )
  eos = {"eos_token_id": reader.eos_ids[0]}
  return Student(model, {**fields, **eos}, {})


def _random_params(
  network: TransformerNetwork, seed: int, mesh: jax.sharding.Mesh
) -> Params:
  config = network.config
  params = {}
  for i, (path, info) in enumerate(sorted(network.param_infos().items())):
    if path.endswith(".scale"):
      value = np.full(info.shape, 1 - config.norm_offset)
    elif path.endswith(".bias"):
      value = np.zeros(info.shape)
    else:
      value = np.random.default_rng((seed, i)).standard_normal(info.shape)
      value *= _STANDARD_DEVIATION
      if path.endswith(_BRANCH_ENDS):
        value /= np.sqrt(2 * config.num_layers)
    where = jax.sharding.NamedSharding(mesh, info.spec(mesh))
    params[path] = jax.device_put(value.astype(np.float32), where)
  return params
