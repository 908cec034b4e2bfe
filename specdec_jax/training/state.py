"""What a training carries from step to step, and one step."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from specdec_jax import sharding
from specdec_jax.models.language_model import LanguageModel
from specdec_jax.models.transformer import Params, TransformerNetwork
from specdec_jax.training import finite, losses
from specdec_jax.types import Array, PyTree


@functools.partial(
  jax.tree_util.register_dataclass,
  data_fields=["step", "params", "average", "optimizer", "fixed"],
  meta_fields=[],
)
@dataclasses.dataclass(frozen=True)
class TrainState:
  """The state of a training.

  Attributes:
    step: how many steps have been made.
    params: the student's weights, float32.
    average: their exponential moving average; None if none is kept.
    optimizer: the state of optax's transformation.
    fixed: what else the network reads, and no optimiser may touch: the token
      ids of a limited vocabulary; None if there is nothing.
  """

  step: Array
  params: Params
  average: Params | None
  optimizer: PyTree
  fixed: Params | None = None

  @property
  def result(self) -> Params:
    """The weights that a training is for."""
    weights = self.params if self.average is None else self.average
    return whole(weights, self.fixed)


def whole(weights: Params, fixed: Params | None) -> Params:
  """What a network reads."""
  return weights if fixed is None else {**weights, **fixed}


def cast(params: Params, dtype: str) -> Params:
  """The weights in this type; what is fixed stays as it is."""
  return {
    path: leaf.astype(dtype) if _is_weight(leaf) else leaf
    for path, leaf in params.items()
  }


def _is_weight(leaf: Array) -> bool:
  return jnp.issubdtype(leaf.dtype, jnp.floating)


@dataclasses.dataclass(frozen=True)
class Objective:
  """What is made small. Static: a program is compiled for it.

  Attributes:
    student: the network that is trained.
    teacher: the network it is compared with, and learns from unless the loss
      is cross-entropy; None if there is none.
    loss: its name, "cross_entropy" or one of `losses.DISTILLATION`.
  """

  student: TransformerNetwork
  teacher: TransformerNetwork | None
  loss: str

  def laws(
    self, params: Params, teacher: PyTree, tokens_BT: Array
  ) -> tuple[Array, Array | None]:
    """Log-probabilities of student and teacher after each token.

    Args:
      params: the student's weights, of any type.
      teacher: the teacher's weights; None if there is none.
      tokens_BT: whole texts.

    Returns:
      log_q_BTV of the student, and log_p_BTV of the teacher, without a
      gradient; None if there is none.
    """
    log_q_BTV = self._law(params, tokens_BT)
    if self.teacher is None:
      return log_q_BTV, None
    log_p_BTV = _log_law(self.teacher, teacher, tokens_BT)
    return log_q_BTV, lax.stop_gradient(log_p_BTV)

  def _law(self, params: Params, tokens_BT: Array) -> Array:
    """Log-probabilities of the student after each token, `[B, T, V]`."""
    own = cast(params, self.student.dtype)
    return _log_law(self.student, own, tokens_BT)

  def __call__(
    self,
    params: Params,
    teacher: PyTree,
    row_BT: Array,
    weight_BT: Array,
    total: Array,
  ) -> Array:
    """What these rows add to the mean loss over the positions of a batch.

    Args:
      params: the student's weights.
      teacher: the teacher's.
      row_BT: rows of T + 1 tokens.
      weight_BT: how much each of the T positions counts.
      total: the sum of the weights of the whole batch.
    """
    if self.loss == losses.CROSS_ENTROPY:
      log_q_BTV = self._law(params, row_BT[:, :-1])
      loss_BT = losses.cross_entropy(row_BT[:, 1:], log_q_BTV)
    else:
      log_q_BTV, log_p_BTV = self.laws(params, teacher, row_BT[:, :-1])
      assert log_p_BTV is not None  # such a loss has a teacher
      loss_BT = losses.DISTILLATION[self.loss](log_p_BTV, log_q_BTV)
    return jnp.sum(loss_BT * weight_BT) / total


def _log_law(
  network: TransformerNetwork, params: PyTree, tokens_BT: Array
) -> Array:
  """Log-probabilities after each token of whole texts, `[B, T, V]`."""
  start_B = jnp.zeros(len(tokens_BT), jnp.int32)
  hidden_BTD, _, _ = network.forward(params, tokens_BT, start_B, None)
  return jax.nn.log_softmax(network.head(params, hidden_BTD), axis=-1)


Step = Callable[
  [TrainState, PyTree, Array, Array], tuple[TrainState, dict[str, Array]]
]


def make_step(
  objective: Objective,
  transformation: optax.GradientTransformation,
  average_decay: float,
  accumulate: int,
  state: TrainState,
) -> Step:
  """Compiles one step: `(state, teacher, row_BT, weight_BT)`.

  The state is donated, but for what is fixed, and stays where it is. Of a
  batch, `accumulate` parts are gone through one after the other. Besides loss
  and gradient_norm the step returns the `largest` of all weights before it and
  of their gradients.
  """

  def update(
    state: TrainState,
    fixed: Params | None,
    teacher: PyTree,
    row_BT: Array,
    weight_BT: Array,
  ) -> tuple[TrainState, dict[str, Array]]:
    total = jnp.sum(weight_BT)

    @jax.value_and_grad
    def differentiate(params: Params, rows: Array, weights: Array) -> Array:
      return objective(whole(params, fixed), teacher, rows, weights, total)

    def add(sums: PyTree, part: tuple[Array, ...]) -> tuple[PyTree, None]:
      rows, weights = part
      one = differentiate(state.params, rows, weights)
      return jax.tree.map(jnp.add, sums, one), None

    if accumulate == 1:
      loss, gradient = differentiate(state.params, row_BT, weight_BT)
    else:
      # Row by row in turn, so that each part lies on all devices.
      parts = tuple(
        array.reshape(-1, accumulate, array.shape[1]).swapaxes(0, 1)
        for array in (row_BT, weight_BT)
      )
      zero = jax.tree.map(jnp.zeros_like, (jnp.float32(0), state.params))
      (loss, gradient), _ = lax.scan(add, zero, parts)
    change, optimizer = transformation.update(
      gradient, state.optimizer, state.params
    )
    params = optax.apply_updates(state.params, change)
    average = state.average
    if average is not None:
      # Faster at first, so that nothing is left of random weights.
      made = state.step.astype(jnp.float32)
      decay = jnp.minimum(average_decay, (1 + made) / (10 + made))
      average = optax.incremental_update(params, average, 1 - decay)
    metrics = {
      "loss": loss,
      "gradient_norm": optax.tree.norm(gradient),
      "weights": finite.largest(state.params),
      "gradients": finite.largest(gradient),
    }
    return TrainState(state.step + 1, params, average, optimizer), metrics

  # What is fixed belongs to the student as well.
  changing = dataclasses.replace(state, fixed=None)
  where = jax.tree.map(lambda leaf: leaf.sharding, changing)
  compiled = jax.jit(update, donate_argnums=0, out_shardings=(where, None))

  def step(
    state: TrainState, teacher: PyTree, row_BT: Array, weight_BT: Array
  ) -> tuple[TrainState, dict[str, Array]]:
    changing = dataclasses.replace(state, fixed=None)
    changed, metrics = compiled(
      changing, state.fixed, teacher, row_BT, weight_BT
    )
    return dataclasses.replace(changed, fixed=state.fixed), metrics

  return step


def init_state(
  params: Params,
  transformation: optax.GradientTransformation,
  averaged: bool,
  mesh: jax.sharding.Mesh,
) -> TrainState:
  """The state before the first step.

  Args:
    params: what the student's network reads, where it shall lie: weights in
      float32, and what is fixed.
    transformation: of the optimiser.
    averaged: whether an average of the weights is kept.
    mesh: where all of it lies.
  """
  everywhere = NamedSharding(mesh, PartitionSpec())
  fixed = {k: leaf for k, leaf in params.items() if not _is_weight(leaf)}
  params = {k: leaf for k, leaf in params.items() if _is_weight(leaf)}

  def place(path: Any, leaf: jax.ShapeDtypeStruct) -> NamedSharding:
    """Beside the parameter that it belongs to."""
    name = getattr(path[-1], "key", None) if path else None
    like = params.get(name) if isinstance(name, str) else None
    if like is None or like.shape != leaf.shape:
      return everywhere
    return like.sharding

  shapes = jax.eval_shape(transformation.init, params)
  where = jax.tree_util.tree_map_with_path(place, shapes)
  return TrainState(
    step=sharding.replicate(jnp.int32(0), mesh),
    params=params,
    average=jax.tree.map(jnp.copy, params) if averaged else None,
    optimizer=jax.jit(transformation.init, out_shardings=where)(params),
    fixed=fixed or None,
  )


def used_up(state: TrainState) -> TrainState:
  """The state without its arrays, whose memory is free: shapes and places.

  What is fixed stays: it is the student's.
  """

  def free(leaf: Array) -> jax.ShapeDtypeStruct:
    shape = jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)
    leaf.delete()
    return shape

  changing = jax.tree.map(free, dataclasses.replace(state, fixed=None))
  return dataclasses.replace(changing, fixed=state.fixed)


def as_model(
  student: LanguageModel, network: TransformerNetwork, params: Params
) -> LanguageModel:
  """The student with these weights, in the type of this network."""
  weights = cast(params, network.dtype)
  return dataclasses.replace(student, network=network, params=weights)
