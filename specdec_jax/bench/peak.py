"""The most memory that a run had, as far as that can be told."""

from pathlib import Path

import jax

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # see proc_pid_clear_refs(5)

DEVICE = "of the fullest device, since the start of the process"
RUN = "resident set of the process, of the run alone"
PROCESS = "resident set of the process, since its start"
UNKNOWN = "not known here"


class Peak:
  """Meters the peak of this process, or of its devices where they tell.

  Attributes:
    meaning: what the figures count, in words.
  """

  def __init__(self) -> None:
    self.meaning = UNKNOWN
    if _of_devices() is not None:
      self.meaning = DEVICE
    elif _of_process() is not None:
      self.meaning = RUN if _reset() else PROCESS

  def start(self) -> None:
    """Forgets what was, where that is possible."""
    if self.meaning == RUN:
      _reset()

  def read(self) -> int | None:
    """Bytes at most since `start`; None where they are not known."""
    return _of_devices() if self.meaning == DEVICE else _of_process()


def _of_devices() -> int | None:
  stats = [device.memory_stats() for device in jax.local_devices()]
  peaks = [it["peak_bytes_in_use"] for it in stats if it]
  return max(peaks, default=None)


def _of_process() -> int | None:
  try:
    lines = _STATUS.read_text().splitlines()
  except OSError:
    return None
  found = [line.split() for line in lines if line.startswith("VmHWM:")]
  return int(found[0][1]) * 1024 if found else None


def _reset() -> bool:
  try:
    _CLEAR.write_text(_RESET_PEAK)
  except OSError:
    return False
  return True
