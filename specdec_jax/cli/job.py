"""Processes that run one command together, each on devices of its own.

All of them run the same programs in the same order, or they wait for one
another forever. What a file, a clock or a user decides is therefore decided by
process 0 and told to the others, and a process that cannot go on tells them
why before it leaves.
"""

import contextlib
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

# The coordination service's client has no public name.
from jax._src import distributed
from jax.experimental import multihost_utils

from specdec_jax.cli import command
from specdec_jax.cli.terminal import one_line, shorten

_FAILED = "specdec/failed"  # where the first to fail says why
_GLANCES = 0.5  # seconds between looks there
_LINGER = 4 * _GLANCES
_REASON = 500  # characters
# What errors say when another process has left in the middle of a program.
_LEFT = ("Gloo", "UNAVAILABLE", "heartbeat")


class Job:
  """The processes of a command; by default this one alone.

  Attributes:
    index: the number of this process.
    count: how many there are.
  """

  def __init__(self, index: int = 0, count: int = 1):
    self.index = index
    self.count = count
    self._interrupted = False

  def agree(self, value: int) -> int:
    """What process 0 says; each must ask at the same place."""
    if self.count == 1:
      return value
    return int(multihost_utils.broadcast_one_to_all(np.int32(value)))

  def from_first(self, read: Callable[[], Any]) -> Any:
    """What process 0 reads, for all of them.

    Args:
      read: called in process 0 only. With several processes what it returns
        goes through JSON.
    """
    if self.count == 1:
      return read()
    told = json.dumps(read()).encode() if self.index == 0 else b""
    size = self.agree(len(told))
    byte_N = np.frombuffer(told or bytes(size), np.uint8)
    byte_N = multihost_utils.broadcast_one_to_all(byte_N)
    return json.loads(byte_N.tobytes())

  @contextlib.contextmanager
  def ctrl_c_waits(self) -> Iterator[None]:
    """As `command.ctrl_c_waits`; interrupts all processes at the same place."""
    if self.count == 1:
      with command.ctrl_c_waits():
        yield
      return
    yield
    if self.agree(self._interrupted):
      raise KeyboardInterrupt

  def heed_ctrl_c(self) -> None:
    """Notes Ctrl-C for the next `ctrl_c_waits`; the second one kills.

    Process 0 decides. A terminal may send it to all of them.
    """

    def note(*_: Any) -> None:
      self._interrupted = True
      signal.signal(signal.SIGINT, signal.SIG_DFL)

    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
      signal.signal(signal.SIGINT, signal.SIG_IGN if self.index else note)


ALONE = Job()


def run(name: str, body: Callable[[Job], int]) -> int:
  """Runs a command in this process of those that have joined.

  Only process 0 writes; the others are silent, but for errors.

  Args:
    name: what messages begin with, after the number of the process.
    body: the command; returns its exit code, the same in each process.

  Returns:
    The exit code. Where a process has failed there is no return from any: at
    the interpreter's end each would wait for the others.
  """
  _keep_stdout()
  # Not what the devices say: they may not start, and then the others hear why.
  state = distributed.global_state
  job = Job(state.process_id, state.num_processes)
  if job.count == 1:
    return body(job)
  job.heed_ctrl_c()
  name = f"process {job.index}: {name}"
  board = _Board(name, job.index)
  failed: list[BaseException] = []

  def guarded() -> int:
    try:
      with _silence() if job.index else contextlib.nullcontext():
        return body(job)
    except BaseException as error:
      failed.append(error)
      if isinstance(error, RuntimeError) and _has_left(error):
        raise ConnectionError(f"another process has ended: {error}") from error
      raise

  try:
    code = command.run(name, guarded)
  except BaseException:  # a fault of the program
    traceback.print_exc()
    code = 1
  for error in failed:
    board.tell(error)
    if job.index == 0:
      time.sleep(_LINGER)  # the others hear of it through this process
    os._exit(code)
  board.close()
  return code


def _keep_stdout() -> None:
  """Keeps standard output for the command: Gloo greets on it."""
  sys.stdout.flush()
  own = os.dup(sys.stdout.fileno())
  with open(os.devnull, "w") as nowhere:
    os.dup2(nowhere.fileno(), sys.stdout.fileno())
  sys.stdout = open(  # noqa: SIM115  (until the end)
    own, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors
  )


@contextlib.contextmanager
def _silence() -> Iterator[None]:
  with (
    open(os.devnull, "w") as nowhere,
    contextlib.redirect_stdout(nowhere),
    contextlib.redirect_stderr(nowhere),
  ):
    yield


def _has_left(error: RuntimeError) -> bool:
  return any(sign in str(error) for sign in _LEFT)


class _Board:
  """Where a process that fails says why, and all read it."""

  def __init__(self, name: str, index: int):
    """Ends this process as soon as another one has failed."""
    self._client: Any = distributed.global_state.client
    self._who = f"process {index} has ended"
    self._err = sys.stderr
    self._name = name
    self._closed = threading.Event()
    self._thread = threading.Thread(target=self._watch, daemon=True)
    self._thread.start()

  def tell(self, error: BaseException) -> None:
    """Says why this process ends, if it is the first to, and looks no more."""
    self._closed.set()
    reason = shorten(one_line(command.reason(error)), _REASON)
    with contextlib.suppress(RuntimeError):  # another was first, or all is lost
      self._client.key_value_set(_FAILED, f"{self._who}: {reason}")

  def close(self) -> None:
    """Looks no more: a thread must not be in JAX at the interpreter's end."""
    self._closed.set()
    self._thread.join()

  def _watch(self) -> None:
    while not self._closed.wait(_GLANCES):
      try:
        told = self._client.key_value_try_get(_FAILED)
      except RuntimeError:
        continue  # nothing there; where nobody answers, JAX ends the process
      if not told.startswith(self._who):
        print(f"{self._name}: error: {told}", file=self._err, flush=True)
        os._exit(1)
