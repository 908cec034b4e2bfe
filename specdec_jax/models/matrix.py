"""Matrices of a model, declared with flax nnx, in float or in int8.

Each parameter says which logical axes it has; `sharding.RULES` say where those
lie. Weights are `[out, in]`, as checkpoints store them: loading is a plain
copy, and it is the layout of XLA's fast bfloat16 products on CPU.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from specdec_jax.types import Array

Ints = tuple[int, ...]
Names = tuple[str, ...]
DType = Any


def param(
  shape: Ints, axes: Names, dtype: DType, units: Ints | None = None
) -> nnx.Param:
  """Declares a parameter.

  Args:
    shape: its shape.
    axes: the logical axis of each dimension, see `sharding.RULES`.
    dtype: its type.
    units: into how many pieces each dimension may be cut; its size if None.
  """
  return nnx.Param(jnp.zeros(shape, dtype), axes=axes, units=units or shape)


def _product(weight_OI: Array, x: Array, **options: Any) -> Array:
  """x W^T over the last axis, `[..., O]`.

  The weights stand first and the result is turned: in float32 XLA on CPU takes
  half the time for few tokens so, and the same for one or for many.
  """
  return jnp.moveaxis(
    jnp.einsum("oi,...i->o...", weight_OI, x, **options), 0, -1
  )


class Types(NamedTuple):
  """What numbers are kept in, and multiplied in.

  Attributes:
    dtype: of activations, norms and biases, and of matrices unless they are
      quantised.
    quantized: whether matrices are int8 with a scale for each row, see
      `quantize`.
    upcast: whether int8 matrices are multiplied in float32. XLA on CPU turns
      them into bfloat16 four times as slowly.
  """

  dtype: DType
  quantized: bool = False
  upcast: bool = False


class Matrix(nnx.Module):
  """A matrix `[out, in]`, in int8 with the scales of its rows if quantised."""

  def __init__(self, axes: Names, shape: Ints, units: Ints, types: Types):
    self.types = types
    dtype = jnp.int8 if types.quantized else types.dtype
    self.weight = param(shape, axes, dtype, units)
    self.weight_scale = (
      param(shape[:1], axes[:1], jnp.float32, units[:1])
      if types.quantized
      else None
    )

  def product(self, x: Array, out: DType) -> Array:
    """x W^T over the last axis, `[..., O]`, in the type `out`.

    An int8 matrix is turned into the activations' type, which is exact, while
    it is multiplied; on a TPU it is read from memory in 8 bits. The product is
    rounded as that of other matrices, before devices add up their parts, and
    scaled in float32.
    """
    weight_OI = self.weight.get_value()
    if self.weight_scale is None:
      return _product(weight_OI, x, preferred_element_type=out)
    if self.types.upcast:
      # Depends on x, lest XLA for CPU turn all weights of a loop into float32
      # before it, and keep them.
      weight_OI, x = jax.lax.optimization_barrier((weight_OI, x))
      x = x.astype(jnp.float32)
    wide = jnp.promote_types(x.dtype, out)
    y = _product(weight_OI.astype(x.dtype), x, preferred_element_type=wide)
    y = y.astype(jnp.float32) * along_last(self.weight_scale, y.ndim)
    return y.astype(out)


class Linear(Matrix):
  """y = W x + b."""

  def __init__(
    self, axes: Names, shape: Ints, units: Ints, bias: bool, types: Types
  ):
    super().__init__(axes, shape, units, types)
    self.bias = (
      param(shape[:1], axes[:1], types.dtype, units[:1]) if bias else None
    )

  def __call__(self, x: Array) -> Array:
    y = self.product(x, x.dtype)
    if self.bias is None:
      return y
    return y + jnp.expand_dims(self.bias.get_value(), range(y.ndim - 1))


def along_last(weight: nnx.Param, ndim: int) -> Array:
  """A vector in float32, for the last of `ndim` axes."""
  wide = weight.get_value().astype(jnp.float32)
  return jnp.expand_dims(wide, range(ndim - 1))
