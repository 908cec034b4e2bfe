"""The flags that let several processes run one command together."""

import os
import sys
import threading
from collections.abc import Callable

import jax
from absl import flags

from specdec_jax.cli import command, job
from specdec_jax.cli.job import Job

_JOIN_SECONDS = 60  # for all processes to come
# A process is given up after so many seconds without a sign of life.
_HEARTBEAT_SECONDS = 30


class DistributedFlags:
  """Flags of every command that several processes can run together.

  Attributes:
    flags: all of them, for the help.
  """

  def __init__(self, values: flags.FlagValues):
    self._distributed = flags.DEFINE_bool(
      "distributed",
      False,
      "This is one of several processes, often on several hosts, that run the "
      "same command together, each with devices of its own. Process 0 reads "
      "the prompts and writes. On Cloud TPU and Slurm they find one another; "
      "elsewhere the next three flags tell.",
      flag_values=values,
    )
    self._coordinator = flags.DEFINE_string(
      "coordinator",
      None,
      "Where process 0 can be reached by all, on a free port: HOST:PORT.",
      flag_values=values,
    )
    self._num_processes = flags.DEFINE_integer(
      "num_processes", None, "How many there are.", flag_values=values
    )
    self._process_id = flags.DEFINE_integer(
      "process_id", None, "The number of this one, from 0.", flag_values=values
    )
    self._where = (self._coordinator, self._num_processes, self._process_id)
    self.flags = (self._distributed, *self._where)

  def check(self) -> None:
    """Checks what can be checked alone.

    Raises:
      ValueError: flags are missing or do not go together, or a value is out of
        range.
    """
    where, count, index = (
      self._coordinator.value,
      self._num_processes.value,
      self._process_id.value,
    )
    given = [flag.name for flag in self._where if flag.value is not None]
    if given and not self._distributed.value:
      raise ValueError(f"--{given[0]} goes with --distributed; give both")
    if not given:
      return
    if where is None or count is None or index is None:
      raise ValueError(
        "expected all of --coordinator, --num_processes and --process_id, or "
        "none where the processes find one another, got "
        + " and ".join(f"--{name}" for name in given)
      )
    host, _, port = where.rpartition(":")
    if not (host and port.isdecimal() and 0 < int(port) < 2**16):
      raise ValueError(
        "--coordinator: expected HOST:PORT, for example 10.0.0.1:8476, got "
        f"{where!r}"
      )
    if count < 1:
      raise ValueError(f"--num_processes: expected at least 1, got {count}")
    if not 0 <= index < count:
      raise ValueError(
        f"--process_id: expected 0 to {count - 1} with --num_processes={count},"
        f" got {index}"
      )

  def run(self, name: str, body: Callable[[Job], int]) -> int:
    """Runs a command, together with the other processes if there are any.

    Args:
      name: of the command.
      body: the command; returns its exit code.

    Raises:
      ValueError: the others cannot be found.
    """
    if not self._distributed.value:
      return body(job.ALONE)
    self._join(name)
    return job.run(name, body)

  def _join(self, name: str) -> None:
    """Waits for the others.

    Raises:
      ValueError: it is not known where they are.
    """
    index, where = self._process_id.value, self._coordinator.value

    def give_up() -> None:
      who = "" if index is None else f"process {index}: "
      print(
        f"{who}{name}: error: --distributed: not all processes have come to "
        f"{where or 'the first of the cluster'} within {_JOIN_SECONDS} s; look "
        "at what the others say, and whether that address can be reached",
        file=sys.stderr,
        flush=True,
      )
      os._exit(command.BAD_INPUT)

    _keep_order_on_cpus()
    # Else SIGTERM would no longer end a process.
    jax.config.update("jax_enable_preemption_service", False)
    # JAX waits longer: it would abort, with a trace of its own functions.
    timer = threading.Timer(_JOIN_SECONDS, give_up)
    timer.daemon = True
    timer.start()
    try:
      jax.distributed.initialize(
        where,
        self._num_processes.value,
        index,
        initialization_timeout=2 * _JOIN_SECONDS,
        heartbeat_timeout_seconds=_HEARTBEAT_SECONDS,
        shutdown_timeout_seconds=_JOIN_SECONDS,
      )
    except (RuntimeError, ValueError) as error:
      how = (
        ""
        if where
        else (
          "; give --coordinator, --num_processes and --process_id where the "
          "processes cannot find one another"
        )
      )
      raise ValueError(f"--distributed: {error}{how}") from error
    finally:
      timer.cancel()


def _keep_order_on_cpus() -> None:
  """Lets no transfer of a program overtake another one.

  XLA for CPUs would let them, other ones in each process, and Gloo aborts. It
  reads this when it begins; elsewhere it changes nothing.
  """
  flag = "--xla_cpu_enable_concurrency_optimized_scheduler=false"
  os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}"
