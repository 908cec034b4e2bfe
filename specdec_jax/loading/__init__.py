"""From checkpoints on disk or on the hub to weights on a mesh."""

from specdec_jax.loading.hf import load

__all__ = ["load"]
