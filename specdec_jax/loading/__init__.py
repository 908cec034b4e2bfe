"""From checkpoints on disk or on the hub to weights on a mesh."""

from specdec_jax.loading.loader import load

__all__ = ["load"]
