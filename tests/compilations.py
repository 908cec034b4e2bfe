"""Counts what is compiled."""

import contextlib

import jax


@contextlib.contextmanager
def compilations():
  """Counts what XLA is asked to compile, whether or not a cache has it."""
  found: list[str] = []

  def listen(event: str, duration: float, **kwargs):
    if event == "/jax/core/compile/backend_compile_duration":
      found.append(event)

  jax.monitoring.register_event_duration_secs_listener(listen)
  try:
    yield found
  finally:
    jax.monitoring.unregister_event_duration_listener(listen)
