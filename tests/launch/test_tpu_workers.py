"""launch/tpu_setup.sh, tpu_run.sh and tpu_sync.sh.

Workers are folders here, and ssh runs its command in one.
"""

import signal
import subprocess
import time

import pytest

from tests.launch.cloud import Cloud, read
from tests.launch.test_tpu import failed, named

HOSTILE = [
  "two words",
  "",
  "'",
  '"',
  "$HOME",
  "`false`",
  "$(false)",
  "\\",
  "a\nb\n",
  "\t",
  "*",
  "~",
  "!",
  "--",
  "-",
  "a;b|c&d>e",
  "ä→🙂",
  " x ",
  "%USER%",
]


@pytest.fixture
def cloud(tmp_path):
  return Cloud(tmp_path)


def log(cloud, worker):
  return (cloud.logs / f"worker-{worker}.log").read_text()


def wait_for(condition):
  for _ in range(400):
    if condition():
      return
    time.sleep(0.05)
  raise AssertionError("it did not happen")


# Setup.


@pytest.fixture
def checkout(cloud):
  cloud.make_checkout()
  cloud.play(workers=2)
  return cloud


def installed(cloud, worker):
  """What pip was told on a worker: its folder, constraints and arguments."""
  return read(cloud.home(worker) / "pip")


def test_setup_installs_the_commit_on_all_workers(checkout):
  (checkout.launch / "late").touch()
  code, out, err = checkout.run("setup")
  assert code == 0, err
  assert err == "warning: changes that are not committed are not sent\n"
  assert "launch/tpu_run.sh" in out
  pins = (checkout.launch / "constraints.txt").read_text()
  for worker in range(2):
    home = checkout.home(worker) / "specdec-jax"
    assert (home / "checkout" / "pyproject.toml").exists()
    assert not (home / "checkout" / "launch" / "late").exists()
    assert installed(checkout, worker) == [
      [str(home / "checkout"), pins, "--quiet", "--editable", ".[tpu]"]
    ]
    cache = checkout.home(worker) / ".cache" / "specdec-jax"
    environment = f"export JAX_COMPILATION_CACHE_DIR={cache}\n"
    assert (home / "environment").read_text() == environment
    assert "specdec 0.1" in log(checkout, worker)
  versions = "jax==0.12.0\nlibtpu==0.0.42\n"
  assert (checkout.logs / "installed.txt").read_text() == versions


def test_setup_may_be_run_again(checkout):
  assert checkout.run("setup")[0] == 0
  (checkout.launch / "late").touch()
  checkout.commit()
  constraints = checkout.logs / "installed.txt"
  variables = {"CONSTRAINTS": str(constraints), "CACHE_DIR": "gs://b/it's $x"}
  code, _, err = checkout.run("setup", **variables)
  assert (code, err) == (0, "")
  home = checkout.home(1) / "specdec-jax"
  assert (home / "checkout" / "launch" / "late").exists()
  assert not (home / "new").exists()
  first, second = installed(checkout, 1)
  assert first[2:] == second[2:] and second[1] == constraints.read_text()
  assert len(read(checkout.home(1) / "made")) == 1
  environment = (home / "environment").read_text()
  assert environment == (
    "export JAX_COMPILATION_CACHE_DIR=gs://b/it\\'s\\ \\$x\n"
  )


def test_where_python_is_old_setup_fetches_another(checkout):
  for worker in range(2):
    (checkout.home(worker) / "good_python").write_text("none")
  assert checkout.run("setup")[0] == 0
  (made,) = read(checkout.home(0) / "made")
  venv = str(checkout.home(0) / "specdec-jax" / "venv")
  assert made[:2] == ["uv", "venv"] and made[-3:] == ["--python", "3.12", venv]


def test_a_worker_that_cannot_be_set_up_is_named(checkout):
  assert checkout.run("setup")[0] == 0
  (checkout.home(1) / "pip_fails").write_text("yes")
  line = failed(checkout.run("setup"))
  assert "worker 1 failed first, with exit code 1: ERROR: no space left" in line
  assert "worker-1.log" in line
  # It counts as not set up then.
  assert not (checkout.home(1) / "specdec-jax" / "environment").exists()


def test_workers_with_other_versions_are_named(checkout):
  (checkout.home(1) / "freeze").write_text("jax==0.11.0\n")
  assert "worker 1 has other versions" in failed(checkout.run("setup"))


def test_a_setup_that_cannot_begin_ends_with_the_reason(checkout):
  checkout.play(workers=0)
  line = failed(checkout.run("setup"))
  assert "no TPU specdec" in line and "NOT_FOUND" in line
  checkout.play(
    workers=2, fails=("tpu-vm scp", "SSH", "the key is not in the agent")
  )
  assert failed(checkout.run("setup")).endswith(
    "SSH: the key is not in the agent"
  )
  assert named(checkout.heard(), "ssh") == []
  checkout.play(workers=2, down=[0])
  line = failed(checkout.run("setup"), 255)
  assert "worker 0 failed first" in line and "exited with return code" in line


# Runs.


def test_arguments_arrive_as_they_are(cloud):
  cloud.install(workers=1)
  argv = ["generate", "--prompt", *HOSTILE]
  code, _, err = cloud.run("run", "--", *argv)
  assert (code, err) == (0, "")
  assert cloud.heard(worker=0) == [argv]


@pytest.mark.parametrize(
  ("given", "sent"),
  [
    (["generate", "--a", "b"], ["generate", "--distributed", "--a", "b"]),
    (["generate", "--", "b"], ["generate", "--distributed", "--", "b"]),
    (["generate", "--distributed"], ["generate", "--distributed"]),
    (["generate", "--nodistributed"], ["generate", "--nodistributed"]),
    (
      ["generate", "--p", "a --distributed b"],
      ["generate", "--distributed", "--p", "a --distributed b"],
    ),
    (["convert", "a", "b"], ["convert", "a", "b"]),
    (["--version"], ["--version"]),
  ],
)
def test_several_workers_are_told_so(cloud, given, sent):
  cloud.install(workers=2)
  assert cloud.run("run", "--", *given)[0] == 0
  assert [cloud.heard(worker) for worker in range(2)] == [[sent], [sent]]


def test_workers_may_be_counted_by_the_caller(cloud):
  cloud.install(workers=3)
  assert cloud.run("run", "--", "generate", WORKERS="2")[0] == 0
  assert [len(cloud.heard(worker)) for worker in range(3)] == [1, 1, 0]
  assert named(cloud.heard(), "describe") == []


def test_worker_0_is_seen_and_all_are_logged(cloud):
  says = "print('to {0}'); print('noise of {0}', file=sys.stderr)"
  cloud.install(2, [says.format(worker) for worker in range(2)])
  cloud.logs = cloud.here / "other logs"
  code, out, err = cloud.run("run", "--", "generate", LOGS="other logs")
  assert (code, out, err) == (0, "to 0\n", "noise of 0\n")
  for worker in range(2):
    lines = sorted(log(cloud, worker).splitlines())
    assert lines == [f"noise of {worker}", f"to {worker}"]


def test_output_comes_while_it_runs(cloud):
  behaviour = "print('first', flush=True); import time; time.sleep(60)"
  cloud.install(1, [behaviour])
  process = cloud.start("run", "--", "generate")
  assert process.stdout.readline() == "first\n"
  process.send_signal(signal.SIGTERM)
  process.communicate(timeout=60)


def test_the_environment_of_setup_is_there(cloud):
  cloud.install(
    1,
    ["print(*map(os.environ.get, ('CACHE', 'PYTHONUNBUFFERED')), os.getcwd())"],
  )
  environment = cloud.home(0) / "specdec-jax" / "environment"
  environment.write_text("export CACHE=here\n")
  assert cloud.run("run", "--", "x")[1] == f"here 1 {cloud.home(0)}\n"


@pytest.mark.parametrize(("code", "told"), [(3, 3), (255, 254)])
def test_the_first_worker_to_fail_is_named(cloud, code, told):
  # 255 is what gcloud takes for a lost connection, and tries again.
  first = f"print('bad\\rworse'); sys.exit({code})"
  later = "import time; time.sleep(1); sys.exit(5)"
  cloud.install(3, [later, "", first])
  line = failed(cloud.run("run", "--", "generate"), told)
  assert f"worker 2 failed first, with exit code {told}: worse (" in line


def test_after_a_failure_the_others_are_ended(cloud):
  wait = "import time; time.sleep(60); print('late')"
  cloud.install(3, [wait, "sys.exit(4)", wait])
  start = time.monotonic()
  line = failed(cloud.run("run", "--", "generate", GRACE="0"), 4)
  assert "worker 1 failed first, with exit code 4" in line
  assert time.monotonic() - start < 50
  assert "late" not in log(cloud, 0)
  assert_free(cloud, workers=3)


def test_a_worker_that_is_down_is_named(cloud):
  wait = "import time; time.sleep(60)"
  cloud.install(2, [wait, ""])
  cloud.play(workers=2, down=[1])
  line = failed(cloud.run("run", "--", "generate", GRACE="1"), 255)
  assert "worker 1 failed first, with exit code 255" in line
  assert "exited with return code [255]" in line
  assert_free(cloud, workers=1)


@pytest.mark.parametrize(
  ("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_ctrl_c_ends_it_on_the_workers(cloud, sent, code):
  behaviour = "listen(home + '/alive'); import time; time.sleep(60)"
  cloud.install(2, [behaviour] * 2)
  process = cloud.start("run", "--", "generate")
  wait_for(lambda: all((cloud.home(i) / "alive").exists() for i in range(2)))
  process.send_signal(sent)
  _, err = process.communicate(timeout=60)
  assert err.splitlines()[-1].startswith("error: interrupted")
  assert process.returncode == code
  assert_free(cloud, workers=2)


def test_a_worker_runs_one_thing_at_a_time(cloud):
  behaviour = "import time; print('here', flush=True); time.sleep(60)"
  cloud.install(1, [behaviour])
  process = cloud.start("run", "--", "generate")
  assert process.stdout.readline() == "here\n"
  code, _, err = cloud.run("run", "--", "generate", LOGS="elsewhere")
  assert code == 75
  assert "another run or setup holds this worker" in err
  # Who ends a run ends no other; by hand it ends whatever it is.
  stop = [cloud.launch / "tpu_worker.sh", "stop"]
  who = {"HOME": str(cloud.home(0)), "PATH": str(cloud.programs)}
  assert subprocess.run(stop, env={**who, "RUN": "other"}).returncode == 0
  assert cloud.run("run", "--", "generate", LOGS="elsewhere")[0] == 75
  assert subprocess.run(stop, env=who).returncode == 0
  _, err = process.communicate(timeout=60)
  assert process.returncode == 128 + signal.SIGTERM
  assert "worker 0 failed first, with exit code 143" in err
  assert_free(cloud, workers=1)


def assert_free(cloud, workers):
  """Nothing runs on the workers any more: another run can begin there."""
  for worker in range(workers):
    (cloud.home(worker) / "behaviour").write_text("")
  cloud.play(workers=workers)
  assert cloud.run("run", "--", "generate")[0] == 0


def test_workers_that_are_not_set_up_say_so(cloud):
  code, _, err = cloud.run("run", "--", "generate")
  assert code == 1
  line = err.splitlines()[-1]
  assert "worker 0 failed first" in line and "run launch/tpu_setup.sh" in line


def test_a_run_without_a_tpu_ends_with_the_reason(cloud):
  cloud.play(workers=0)
  line = failed(cloud.run("run", "--", "generate"))
  assert "no TPU specdec" in line and "NOT_FOUND" in line
  cloud.play()
  (cloud.here / "file").touch()
  line = failed(cloud.run("run", "--", "generate", LOGS="file/logs"))
  assert "file/logs" in line


# Checkpoints.


@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_folder_is_copied(cloud, direction):
  local = cloud.here / "my model"
  if direction == "up":
    local.mkdir()
    (local / "config.json").touch()
  result = cloud.run(
    "sync", direction, "my model", "gs://bucket/a b", PROJECT="p"
  )
  assert result[::2] == (0, "")
  paths = ["my model", "gs://bucket/a b"][:: 1 if direction == "up" else -1]
  assert cloud.heard() == [
    ["storage", "rsync", "--recursive", *paths, "--project=p", "--quiet"]
  ]
  assert local.is_dir()


def test_an_empty_folder_is_not_copied(cloud):
  assert "nowhere" in failed(cloud.run("sync", "up", "nowhere", "gs://b/p"))
  (cloud.here / "empty").mkdir()
  assert "empty" in failed(cloud.run("sync", "up", "empty", "gs://b/p"))
  (cloud.here / "file").touch()
  assert "file" in failed(cloud.run("sync", "up", "file", "gs://b/p"))
  assert cloud.heard() == []


def test_a_copy_that_fails_ends_with_the_reason(cloud):
  cloud.play(fails=("storage", "HTTPError 404", "The bucket does not exist."))
  line = failed(cloud.run("sync", "down", "here", "gs://bucket/path"))
  assert line.endswith("HTTPError 404: The bucket does not exist.")
  (cloud.here / "file").touch()
  line = failed(cloud.run("sync", "down", "file/here", "gs://bucket/path"))
  assert "cannot make the folder" in line


def test_a_folder_is_copied_to_all_workers_and_from_the_first(cloud):
  cloud.play(workers=2)
  # gcloud on the workers is another one.
  gcloud = cloud.folder / "worker-bin" / "gcloud"
  gcloud.parent.mkdir()
  gcloud.write_text('#!/bin/bash\nprintf "%s\\n" "$@" >"$HOME/synced"\n')
  gcloud.chmod(0o755)
  assert cloud.run("sync", "--workers", "down", "my $x", "gs://b/p")[0] == 0
  for worker in range(2):
    home = cloud.home(worker)
    assert (home / "my $x").is_dir()
    told = (home / "synced").read_text().splitlines()
    assert told == ["storage", "rsync", "--recursive", "gs://b/p", "my $x"]
    (home / "synced").unlink()
  line = failed(cloud.run("sync", "--workers", "up", "my $x", "gs://b/p"))
  assert "worker 0" in line and "the folder is missing or empty" in line
  (cloud.home(0) / "my $x" / "file").touch()
  assert cloud.run("sync", "--workers", "up", "my $x", "gs://b/p")[0] == 0
  told = (cloud.home(0) / "synced").read_text().splitlines()
  assert told == ["storage", "rsync", "--recursive", "my $x", "gs://b/p"]
  assert not (cloud.home(1) / "synced").exists()
