"""Two processes of two devices each, on the CPU of this machine."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

import pytest

import specdec_jax as sd

_MESH = "--mesh=data:2,model:2"
_PATIENCE = 300  # seconds: on a busy machine all takes long
_GRACE = 60  # within which a process must follow another one


# A libtpu that finds no TPU would have its say.
_CPUS = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "2"}


def _free_address():
  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    return f"127.0.0.1:{free.getsockname()[1]}"


class Job:
  """Processes that run `specdec generate` together."""

  def __init__(self, folder, *models):
    self._folder = folder
    self._models = models
    self.processes = []

  def start(self, *flags, stdin=None, count=2, other=()):
    """`other`: variables of the last process."""
    where = _free_address()
    self.processes = [
      self._process(
        index,
        *self._models,
        "--distributed",
        f"--coordinator={where}",
        f"--num_processes={count}",
        f"--process_id={index}",
        *flags,
        stdin=None if index else stdin,
        variables=dict(other) if index == count - 1 else {},
      )
      for index in range(count)
    ]

  def _process(self, index, *flags, stdin, variables):
    command = [sys.executable, "-m", "specdec_jax.cli.main", "generate"]
    with (
      open(stdin or os.devnull, "rb") as read,
      open(self._folder / f"out{index}", "wb") as out,
      open(self._folder / f"err{index}", "wb") as err,
    ):
      return subprocess.Popen(
        [*command, *flags],
        stdin=read,
        stdout=out,
        stderr=err,
        env=os.environ | _CPUS | variables,
      )

  def wait(self, seconds=_PATIENCE):
    """Waits for all; returns exit codes, and what each wrote."""
    end = time.monotonic() + seconds
    codes = [
      process.wait(max(end - time.monotonic(), 0.1))
      for process in self.processes
    ]
    return codes, self.read("out"), self.read("err")

  def read(self, name):
    return [
      (self._folder / f"{name}{index}").read_text()
      for index in range(len(self.processes))
    ]

  def wait_for_lines(self, path, count):
    """Waits until a file has so many lines."""
    end = time.monotonic() + _PATIENCE
    while not path.exists() or path.read_bytes().count(b"\n") < count:
      assert all(process.poll() is None for process in self.processes)
      assert time.monotonic() < end
      time.sleep(0.01)


@pytest.fixture
def job(tmp_path, target, draft):
  models = f"--target={target}", f"--draft={draft}", "--dtype=float32"
  job = Job(tmp_path, *models)
  yield job
  for process in job.processes:
    process.kill()
    process.wait()


def test_they_write_what_one_writes(job, generate, prompts):
  """The prompts are known to process 0 alone."""
  flags = (
    "--rule=gumbel",
    "--temperature=1",
    "--batch_size=2",
    "--num_draft_tokens=2",
    "--max_new_tokens=12",
    "--stop=zz",
  )
  job.start(
    _MESH, "--json", "--compare", "--prompts_file=-", *flags, stdin=prompts
  )
  codes, (out, silent), err = job.wait()
  assert (codes, silent, err) == ([0, 0], "", ["", ""])
  together = [json.loads(line) for line in out.splitlines()]
  alone = generate.json(f"--prompts_file={prompts}", *flags)
  for ours, theirs in zip(together, alone, strict=True):
    assert ours["identical"]
    for name in theirs.keys() - {"tokens_per_second"}:
      assert ours[name] == theirs[name]


def _results(path):
  lines = [json.loads(line) for line in path.read_text().splitlines()]
  return [(line["prompt"], line["tokens"]) for line in lines]


def test_one_that_is_killed_ends_the_other(job, generate, write, tmp_path):
  """So does Ctrl-C. The file goes on with what each has left."""
  many = write("\n".join(f"prompt {i} of many" for i in range(60)), "many.txt")
  path, whole = tmp_path / "results.jsonl", tmp_path / "whole.jsonl"
  flags = (
    f"--prompts_file={many}",
    "--batch_size=4",
    "--max_new_tokens=20",
    "--drafter=lookup",
  )

  job.start(_MESH, *flags, f"--output={path}")
  job.wait_for_lines(path, 3)
  job.processes[0].send_signal(signal.SIGINT)
  codes, (out, silent), (err, quiet) = job.wait(_GRACE)
  assert (codes, silent, quiet) == ([130, 130], "", "")
  assert "new tokens" in out and "note: interrupted\n" in err
  before = len(_results(path))

  job.start(_MESH, *flags, f"--output={path}")
  job.wait_for_lines(path, before + 3)
  job.processes[1].send_signal(signal.SIGKILL)
  (code, _), _, (err, _) = job.wait(_GRACE)
  assert code not in (0, 130)
  assert f"holds {before} results already" in err
  # Gloo has noticed, or JAX has: see docs/many_hosts.md.
  ours = "process 0: specdec generate: error: another process has ended: "
  assert ours in err or "the JAX distributed service detected" in err

  before = len(_results(path))
  assert generate(*flags, f"--output={whole}")[0] == 0
  assert _results(path) == _results(whole)[:before]
  code, _, err = generate(*flags, f"--output={path}")
  assert code == 0 and f"holds {before} results already" in err
  assert _results(path) == _results(whole)


def test_what_process_0_cannot_read_ends_the_other(job, tmp_path):
  job.start(_MESH, f"--prompts_file={tmp_path}/no.jsonl")
  codes, out, (err, other) = job.wait(_PATIENCE)
  assert (codes, out) == ([2, 1], ["", ""])
  reason = f"{tmp_path}/no.jsonl: No such file or directory\n"
  assert err == f"process 0: specdec generate: error: {reason}"
  assert other == (
    f"process 1: specdec generate: error: process 0 has ended: {reason}"
  )


def test_devices_that_do_not_start_end_the_other(job):
  job.start(_MESH, "--prompt=a", other={"JAX_PLATFORMS": "rocm"})
  codes, out, (err, _) = job.wait(_PATIENCE)
  assert (codes, out) == ([1, 1], ["", ""])
  assert "error: process 1 has ended: " in err and "rocm" in err


def test_one_that_does_not_come_is_not_waited_for():
  script = (
    "import sys\n"
    "from specdec_jax.cli import distributed_flags, main\n"
    "distributed_flags._JOIN_SECONDS = 2\n"
    "sys.exit(main.main(sys.argv[1:]))\n"
  )
  where = _free_address()
  done = subprocess.run(
    [
      *(sys.executable, "-c", script, "generate", "--prompt=a"),
      *("--distributed", f"--coordinator={where}"),
      *("--num_processes=2", "--process_id=0"),
    ],
    capture_output=True,
    text=True,
    timeout=_PATIENCE,
  )
  assert (done.returncode, done.stdout) == (2, "")
  assert done.stderr == (
    "process 0: specdec generate: error: --distributed: not all processes "
    f"have come to {where} within 2 s; look at what the others say, and "
    "whether that address can be reached\n"
  )


def test_one_process_is_a_job_as_well(job):
  flags = ("--prompt=ab", "--max_new_tokens=2", "--drafter=none")
  job.start("--mesh=model:2", *flags, count=1)
  codes, (out,), _ = job.wait()
  assert codes == [0] and "new tokens" in out


@pytest.mark.parametrize(
  "flags, reason",
  [
    (["--num_processes=2"], "--num_processes goes with --distributed"),
    (
      ["--distributed", "--process_id=1", "--coordinator=a:1"],
      "none where the processes find one another, got --coordinator and "
      "--process_id",
    ),
    *(
      (
        [
          "--distributed",
          f"--coordinator={where}",
          f"--num_processes={count}",
          f"--process_id={index}",
        ],
        reason,
      )
      for where, count, index, reason in [
        ("host", 2, 0, "--coordinator: expected HOST:PORT, for example"),
        (":80", 2, 0, "got ':80'"),
        ("host:99999", 2, 0, "got 'host:99999'"),
        ("host:port", 2, 0, "got 'host:port'"),
        ("host:80", 0, 0, "--num_processes: expected at least 1, got 0"),
        ("host:80", 2, 2, "--process_id: expected 0 to 1 with "),
        ("host:80", 2, -1, "got -1"),
      ]
    ),
  ],
)
def test_what_is_refused_before_any_waits(generate, flags, reason):
  assert re.search(re.escape(reason), generate.refused("--prompt=a", *flags))


def test_the_example_of_the_documentation(tmp_path):
  """With the embedded pair, whose programs have more transfers at a time."""
  prompt, count = "def is_prime(n):", 16
  job = Job(tmp_path, "--dtype=float32")
  job.start(_MESH, f"--prompt={prompt}", f"--max_new_tokens={count}")
  codes, (out, _), _ = job.wait()
  assert codes == [0, 0]
  target = sd.load("embedded:pycode/target", dtype="float32")
  alone = sd.SpeculativeDecoder(target).generate(prompt, max_new_tokens=count)
  assert alone.texts[0].strip() and alone.texts[0] in out
