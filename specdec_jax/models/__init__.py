"""The decoder: one network for every family, declared with flax nnx."""
