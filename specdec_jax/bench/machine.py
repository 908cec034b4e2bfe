"""What a benchmark ran on."""

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import jax

_PACKAGES = ("specdec-jax", "jax", "jaxlib", "numpy", "transformers", "torch")
_CPUINFO = Path("/proc/cpuinfo")


def versions(*, peer: bool) -> dict[str, str]:
  """Those of Python and of the packages that matter.

  Args:
    peer: whether torch's matters.
  """
  found = {"python": platform.python_version()}
  for name in _PACKAGES if peer else _PACKAGES[:-1]:
    try:
      found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
      found[name] = "not installed"
  return found


def describe() -> dict[str, Any]:
  """The machine: its CPU, how much of it may be used, and jax's devices."""
  devices = jax.devices()
  return {
    "cpu": _cpu(),
    "cores": _cores(),
    "memory_gib": _memory_gib(),
    "system": f"{platform.system()} {platform.machine()}",
    "devices": f"{len(devices)} x {devices[0].device_kind}",
    "xla_flags": os.environ.get("XLA_FLAGS", ""),
  }


def commit() -> str | None:
  """The git commit of the package, "-dirty" where it was changed since.

  None where it does not come from a checkout.
  """
  root = Path(__file__).parents[2]
  if not (root / ".git").exists():
    return None
  command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
  try:
    done = subprocess.run(
      command, cwd=root, capture_output=True, text=True, timeout=10
    )
  except (OSError, subprocess.TimeoutExpired):
    return None
  return done.stdout.strip() or None


def _cpu() -> str:
  try:
    lines = _CPUINFO.read_text().splitlines()
  except OSError:
    lines = []
  names = [line.partition(":")[2] for line in lines if "model name" in line]
  return names[0].strip() if names else platform.processor() or "unknown"


def _cores() -> int:
  try:
    return len(os.sched_getaffinity(0))
  except AttributeError:  # not on every system
    return os.cpu_count() or 1


def _memory_gib() -> float | None:
  try:
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
  except (AttributeError, ValueError, OSError):
    return None
  return round(size / 2**30, 1)
