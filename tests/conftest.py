"""Settings that every test runs under."""

import os
import pathlib

import pytest

# Compiling is most of what the tests do, so they share a compile cache that
# outlives them: of each user's own, since a cache is trusted input. jax reads
# these when it is imported; processes that tests start inherit them.
_cache_home = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
os.environ.setdefault(
  "JAX_COMPILATION_CACHE_DIR",
  str(pathlib.Path(_cache_home, "specdec_jax", "test-compile-cache")),
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

# Much of that time is LLVM making code fast that runs once. Real models are run
# for minutes.
if not os.environ.get("SPECDEC_MODELS"):
  flags = os.environ.get("XLA_FLAGS", "")
  os.environ["XLA_FLAGS"] = f"{flags} --xla_backend_optimization_level=0"

import jax  # noqa: E402

from specdec_jax import programs  # noqa: E402

# Only here, not in the environment: programs that tests start see what a user
# would see. Simulated devices cost single-device programs nothing measurable.
jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_default_matmul_precision", "highest")


# Linux lets a process map 65,530 pieces of memory. Each compiled program has
# some, and XLA dies where it gets no more.
_MAPS = pathlib.Path("/proc/self/maps")
_MANY = 30_000


@pytest.fixture(scope="module", autouse=True)
def _programs_go_when_they_are_many():
  yield
  if _MAPS.exists() and _MAPS.read_bytes().count(b"\n") > _MANY:
    programs._compile.cache_clear()
    jax.clear_caches()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
  """Skips what needs the real models where there are none."""
  if os.environ.get("SPECDEC_MODELS"):
    return
  skip = pytest.mark.skip(reason="SPECDEC_MODELS names no folder of models")
  for item in items:
    if "real" in item.keywords:
      item.add_marker(skip)
