"""Students that are a part of a checkpoint: fewer layers, fewer tokens."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from specdec_jax.models import config as config_lib
from specdec_jax.models.transformer import Params
from specdec_jax.training import data
from specdec_jax.training.student import Student


def keep_layers(student: Student, layers: Sequence[int]) -> Student:
  """The student with some of its layers, in this order.

  Args:
    student: a model.
    layers: their numbers, from 0.

  Raises:
    ValueError: no layers, one that is not there, or one named twice.
  """
  config = student.config
  count = config.num_layers
  foreign = [layer for layer in layers if not 0 <= layer < count]
  if foreign or not layers or len(set(layers)) < len(layers):
    raise ValueError(
      f"keep_layers: expected different layers of 0 to {count - 1}, those that "
      f"{student.model.name} has, got {', '.join(map(str, layers)) or 'none'}"
    )
  number = config.family.spellings.get("num_hidden_layers", "num_hidden_layers")
  fields = {**student.fields, number: len(layers)}
  if config.full_layers:
    # Some families count layers to tell which have a window: after pruning a
    # layer has another number, but it was trained with the window it had.
    kinds = config_lib.FULL_LAYER, config_lib.WINDOW_LAYER
    fields["layer_types"] = [kinds[config.window_of(i) > 0] for i in layers]
  elif fields.get("layer_types"):  # all are alike
    fields["layer_types"] = fields["layer_types"][: len(layers)]
  places = {old: new for new, old in enumerate(layers)}
  params = {}
  for path, value in student.model.params.items():
    kind, _, rest = path.partition(".")
    if kind != "layers":
      params[path] = value
      continue
    layer, _, name = rest.partition(".")
    if int(layer) in places:
      params[f"layers.{places[int(layer)]}.{name}"] = value
  return _remade(student, fields, params)


def limit_vocabulary(
  student: Student, texts: Sequence[str], size: int
) -> Student:
  """The student with a head over the most frequent tokens of some texts.

  What it cannot say has probability 0, which a draft may have: a token that is
  never drafted is never rejected either. It still reads all tokens. FR-Spec
  (Zhao et al., arXiv 2502.14856) limits a draft's head so, and EAGLE-3 (Li et
  al., arXiv 2503.01840) is trained with one.

  Written down, the head is `lm_head.weight [N, D]`, `draft_vocab_ids [N]` has
  the token of each of its rows, and N is `draft_vocab_size` of config.json.
  They are ours: transformers does not load such a model.

  Args:
    student: a model.
    texts: what tokens are counted in, with its own tokenizer.
    size: N. Ends of sequence and special tokens are always among them; of
      tokens equally frequent the first ones are taken.

  Raises:
    ValueError: N is too small or too large, the model has no tokenizer, or its
      head is limited already.
  """
  model, config = student.model, student.config
  if config.draft_vocab_size:
    raise ValueError(
      f"draft_vocab: {model.name} has a head of {config.draft_vocab_size} "
      "tokens already; name the model that it was made from"
    )
  if model.tokenizer is None:
    raise ValueError(
      f"draft_vocab: {model.name} has no tokenizer to count tokens with"
    )
  kept = {*model.eos_ids, *model.tokenizer.special_ids}
  kept_ids = [i for i in sorted(kept) if i < config.known_rows]
  least = max(len(kept_ids), 1)
  if not least <= size <= config.known_rows:
    raise ValueError(
      f"draft_vocab: expected {least} to {config.known_rows} tokens, so many "
      f"as are special and as {model.name} knows, got {size}"
    )
  count_V = np.zeros(config.known_rows, np.int64)
  for tokens in data.tokenize(texts, model.tokenizer, "data to count tokens"):
    found = np.bincount(tokens, minlength=config.known_rows)
    count_V += found[: config.known_rows]
  count_V[kept_ids] = np.iinfo(np.int64).max
  order_V = np.argsort(-count_V, kind="stable")
  id_N = np.sort(order_V[:size]).astype(np.int32)
  table = model.params.get("head.weight", model.params["embed.weight"])
  head = {"head.weight": jnp.take(table, id_N, axis=0), "draft_vocab_ids": id_N}
  fields = {
    **student.fields,
    "draft_vocab_size": size,
    "tie_word_embeddings": False,
  }
  return _remade(student, fields, {**model.params, **head})


def _remade(
  student: Student, fields: Mapping[str, Any], params: Params
) -> Student:
  """The student of another config.json, its weights where they belong."""
  old = student.model
  config = config_lib.from_hf(fields).with_vocab(
    student.config.known_rows, student.config.vocab_size
  )
  network = dataclasses.replace(student.network, config=config)
  placed = {
    path: jax.device_put(
      params[path], NamedSharding(old.mesh, info.spec(old.mesh))
    )
    for path, info in network.param_infos().items()
  }
  model = dataclasses.replace(old, network=network, params=placed)
  return dataclasses.replace(student, model=model, fields=fields)
