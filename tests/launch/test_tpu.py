"""launch/tpu_*.sh with a gcloud that only listens and plays scenes.

Setup, runs and copies are in test_tpu_workers.py.
"""

import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys

import pytest

from tests.launch.cloud import ROOT, Cloud

VERBS = ("create", "setup", "run", "sync", "delete")
# Arguments with which a verb does something.
ARGUMENTS = {
  "run": ("--", "generate", "--prompt", "it's"),
  "sync": ("--workers", "down", "a b", "gs://bucket/path"),
  "delete": ("--yes",),
}
WHERE = ["--zone=us-west4-a", "--quiet"]
REQUEST = ["compute", "tpus", "queued-resources"]


@pytest.fixture
def cloud(tmp_path):
  return Cloud(tmp_path)


def failed(result, code=1):
  """The line that a failed script wrote; it must be one."""
  assert result[0] == code, result
  (line,) = result[2].splitlines()
  assert line.startswith("error: ")
  return line


def without_id(argv):
  return [re.sub(r"RUN=\S+", "RUN=id;", argument) for argument in argv]


def named(heard, verb):
  return [argv for argv in heard if verb in argv]


# All of them.


@pytest.mark.parametrize("verb", VERBS)
def test_help_is_the_head_of_the_script(cloud, verb):
  code, out, err = cloud.run(verb, "--help", NAME=None, ZONE=None)
  assert (code, err) == (0, "")
  assert f"launch/tpu_{verb}.sh" in out and "--dry_run" in out
  assert "#" not in out and "pipefail" not in out
  assert cloud.heard() == []


@pytest.mark.parametrize(
  ("verb", "arguments"),
  [
    *((verb, ("--nonsense",)) for verb in VERBS),
    ("create", ("now",)),
    ("setup", ("now",)),
    ("delete", ("now",)),
    ("run", ()),
    ("run", ("generate", "--prompt", "x")),
    ("sync", ("up", "here")),
    ("sync", ("over", "here", "gs://bucket/path")),
    ("sync", ("up", "here", "gs://bucket")),
    ("sync", ("up", "here", "s3://bucket/path")),
    ("sync", ("up", "gs://bucket/path", "here")),
  ],
)
def test_wrong_arguments_are_told_the_usage(cloud, verb, arguments):
  code, out, err = cloud.run(verb, *arguments)
  assert (code, out) == (2, "")
  assert f"launch/tpu_{verb}.sh" in err
  assert err.splitlines()[-1].startswith("error: ")
  assert cloud.heard() == []


@pytest.mark.parametrize(
  ("verb", "variable"),
  [
    *((verb, name) for verb in VERBS for name in ("NAME", "ZONE")),
    ("create", "ACCELERATOR"),
  ],
)
@pytest.mark.parametrize("value", [None, ""])
def test_a_missing_variable_is_named(cloud, verb, variable, value):
  arguments = ARGUMENTS.get(verb, ())
  line = failed(cloud.run(verb, *arguments, **{variable: value}), 2)
  assert line.startswith(f"error: {variable} ")
  assert cloud.heard() == []


@pytest.mark.parametrize(
  ("verb", "variables"),
  [
    ("create", {"TIMEOUT": "soon"}),
    ("create", {"POLL": "often"}),
    ("create", {"PROVISIONING": "stolen"}),
    ("create", {"ACCELERATOR": "v5p-8"}),
    ("delete", {"TIMEOUT": "1.5"}),
    ("delete", {"POLL": "-1"}),
    ("setup", {"CONSTRAINTS": "nowhere.txt"}),
    ("run", {"WORKERS": "all"}),
  ],
)
def test_a_wrong_variable_is_named(cloud, verb, variables):
  (value,) = variables.values()
  code, _, err = cloud.run(verb, *ARGUMENTS.get(verb, ()), **variables)
  assert code == 2
  assert value in err.splitlines()[-1]
  assert cloud.heard() == []


@pytest.mark.parametrize("verb", VERBS)
def test_without_gcloud_it_is_told_where_to_get_it(cloud, verb):
  line = failed(
    cloud.run(verb, *ARGUMENTS.get(verb, ()), PATH=str(cloud.programs))
  )
  assert "gcloud is not installed" in line


@pytest.mark.parametrize("verb", VERBS)
def test_a_dry_run_prints_what_would_be_run(cloud, verb):
  cloud.make_checkout()
  cloud.install(workers=1)
  if verb == "delete":
    cloud.play(states=["ACTIVE", "NOT_FOUND"])
  before = sorted(cloud.folder.rglob("*"))
  arguments = ARGUMENTS.get(verb, ())
  dry = cloud.run(verb, "--dry_run", *arguments, PROJECT="p", CACHE_DIR="a b")
  assert (dry[0], dry[2]) == (0, "")
  assert cloud.heard() == []
  assert sorted(cloud.folder.rglob("*")) == before
  commands = [shlex.split(line) for line in dry[1].splitlines()]
  cloud.run(verb, *arguments, PROJECT="p", CACHE_DIR="a b")
  # The state is asked for more than once; deletion asks for it first.
  heard = list(dict.fromkeys(map(tuple, map(without_id, cloud.heard()))))
  assert heard
  told = [tuple(without_id(c[1:])) for c in commands if c[0] == "gcloud"]
  assert sorted(told) == sorted(heard)
  if verb != "delete":
    assert told == heard


def test_a_dry_run_needs_no_gcloud(cloud):
  code, out, _ = cloud.run("create", "--dry_run", PATH=str(cloud.programs))
  assert code == 0 and out.startswith("gcloud compute tpus")


def test_shellcheck_is_content():
  beside = pathlib.Path(sys.executable).with_name("shellcheck")
  program = shutil.which("shellcheck") or (beside.exists() and beside)
  if not program:
    pytest.skip("shellcheck is not installed")
  scripts = sorted((ROOT / "launch").glob("*.sh"))
  done = subprocess.run(
    [program, "-x", *scripts], cwd=ROOT, capture_output=True, text=True
  )
  assert done.stdout == ""
  assert len(scripts) >= 10


# Creation.


@pytest.mark.parametrize(
  ("variables", "track", "flags"),
  [
    (
      {},
      [],
      [
        "--accelerator-type=v6e-8",
        "--runtime-version=v2-alpha-tpuv6e",
        "--valid-until-duration=3600s",
        *WHERE,
        "--spot",
      ],
    ),
    (
      {"ACCELERATOR": "v5litepod-16", "PROVISIONING": "standard"},
      [],
      [
        "--accelerator-type=v5litepod-16",
        "--runtime-version=v2-alpha-tpuv5-lite",
        "--valid-until-duration=3600s",
        *WHERE,
      ],
    ),
    (
      {
        "ACCELERATOR": "v5p-8",
        "RUNTIME": "v2-alpha-tpuv5",
        "PROVISIONING": "flex-start",
        "MAX_RUN": "30m",
        "VALID_FOR": "6h",
        "PROJECT": "p",
      },
      ["alpha"],
      [
        "--accelerator-type=v5p-8",
        "--runtime-version=v2-alpha-tpuv5",
        "--valid-until-duration=6h",
        "--zone=us-west4-a",
        "--project=p",
        "--quiet",
        "--provisioning-model=flex-start",
        "--max-run-duration=30m",
      ],
    ),
  ],
)
def test_it_asks_for_a_tpu(cloud, variables, track, flags):
  assert cloud.run("create", **variables)[::2] == (0, "")
  create, describe = cloud.heard()
  assert create == [
    *track,
    *REQUEST,
    "create",
    "specdec",
    "--node-id=specdec",
    *flags,
  ]
  assert describe[:5] == [*REQUEST, "describe", "specdec"]


def test_it_waits_and_tells_each_change(cloud):
  states = ["WAITING_FOR_RESOURCES"] * 3 + [
    "UNREACHABLE",
    "PROVISIONING",
    "ACTIVE",
  ]
  cloud.play(states)
  code, out, err = cloud.run("create")
  assert (code, err) == (0, "")
  changes = re.findall(r"^\d\d:\d\d:\d\d (\w+)", out, flags=re.MULTILINE)
  assert changes == [
    "WAITING_FOR_RESOURCES",
    "UNKNOWN",
    "PROVISIONING",
    "ACTIVE",
  ]
  assert "no network" in out
  assert "costs money" in out and "launch/tpu_setup.sh" in out
  assert len(named(cloud.heard(), "create")) == 1
  assert len(named(cloud.heard(), "describe")) == len(states)


@pytest.mark.parametrize(
  ("end", "reason"),
  [
    ("FAILED||v6e-8|No capacity; a | b", "FAILED: No capacity; a | b"),
    (
      "SUSPENDED|SERVICE|v6e-8|",
      "SUSPENDED by SERVICE: the TPU was taken away",
    ),
    ("SUSPENDING|USER|v6e-8|", "SUSPENDING by USER"),
    ("NOT_FOUND", "NOT_FOUND"),
  ],
)
def test_a_request_that_ends_badly_ends_with_the_reason(cloud, end, reason):
  cloud.play(["WAITING_FOR_RESOURCES", "PROVISIONING", end])
  line = failed(cloud.run("create"))
  assert reason in line
  assert "NAME=specdec ZONE=us-west4-a launch/tpu_delete.sh deletes it" in line


@pytest.mark.parametrize("state", ["WAITING_FOR_RESOURCES", "UNREACHABLE"])
def test_it_does_not_wait_for_ever(cloud, state):
  cloud.play([state])
  line = failed(cloud.run("create", TIMEOUT="1"))
  assert "after 1 s" in line and "launch/tpu_delete.sh" in line
  assert ("no network" in line) == (state == "UNREACHABLE")


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_who_stops_to_wait_is_told_that_the_request_stays(cloud, sent):
  cloud.play(["WAITING_FOR_RESOURCES"])
  process = cloud.start("create")
  assert "WAITING" in process.stdout.readline()
  process.send_signal(sent)
  _, err = process.communicate(timeout=60)
  line = failed((process.returncode, "", err), 130)
  assert "may still be granted" in line and "launch/tpu_delete.sh" in line


def test_it_can_wait_for_an_earlier_request(cloud):
  cloud.play(["PROVISIONING", "ACTIVE"])
  assert cloud.run("create", "--wait", ACCELERATOR=None)[0] == 0
  assert len(cloud.heard()) == 2 and named(cloud.heard(), "create") == []


@pytest.mark.parametrize(
  ("state", "told"),
  [
    (
      "ACTIVE||v6e-8|",
      "ACTIVE v6e-8: if it is yours, go on with launch/tpu_setup",
    ),
    ("ACTIVE||v6e-4|", "taken (v6e-4, ACTIVE)"),
    ("WAITING_FOR_RESOURCES||v6e-8|", "--wait"),
    ("SUSPENDED||v6e-8|", "launch/tpu_delete.sh"),
  ],
)
def test_a_name_that_is_taken(cloud, state, told):
  taken = (
    "queued-resources create",
    "ALREADY_EXISTS",
    "'specdec' already exists",
  )
  cloud.play([state], fails=taken)
  assert told in failed(cloud.run("create"))


def test_a_request_that_is_refused_ends_with_the_reason(cloud):
  cloud.play(
    fails=("queued-resources create", "RESOURCE_EXHAUSTED", "Quota of 0 chips")
  )
  line = failed(cloud.run("create"))
  assert line.endswith("RESOURCE_EXHAUSTED: Quota of 0 chips")
  assert len(cloud.heard()) == 1


# Deletion.


def test_it_deletes_and_waits_until_it_is_gone(cloud):
  cloud.play(["ACTIVE", "DELETING", "DELETING", "NOT_FOUND"])
  code, out, err = cloud.run("delete", "--yes")
  assert (code, err) == (0, "")
  assert "gone" in out
  assert cloud.heard()[1] == [*REQUEST, "delete", "specdec", "--force", *WHERE]
  assert len(cloud.heard()) == 5


@pytest.mark.parametrize(
  ("answer", "deleted"), [("y", True), ("Y", True), ("n", False), ("", False)]
)
def test_it_asks_before(cloud, answer, deleted):
  cloud.play(["ACTIVE", "NOT_FOUND"])
  terminal, stdin = os.openpty()
  os.write(terminal, f"{answer}\n".encode())
  code, _, err = cloud.run("delete", stdin=stdin)
  os.close(stdin)
  os.close(terminal)
  assert err.startswith("Delete queued resource specdec and its TPU? [y/N] ")
  assert code == (0 if deleted else 1)
  assert bool(named(cloud.heard(), "delete")) == deleted
  assert deleted or "nothing was deleted" in err


def test_with_nobody_to_ask_nothing_is_deleted(cloud):
  assert "--yes" in failed(cloud.run("delete"))
  assert cloud.heard() == []


def test_that_something_else_is_not_found_is_a_failure(cloud):
  reason = "host NOT_FOUND in DNS"
  cloud.play(fails=("queued-resources delete", "UNAVAILABLE", reason))
  line = failed(cloud.run("delete", "--yes"))
  assert "may cost money" in line and reason in line


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_nothing_to_delete_is_no_failure(cloud, when):
  if when == "before":
    cloud.play(["NOT_FOUND"])
  else:
    cloud.play(
      fails=("queued-resources delete", "NOT_FOUND", "no such resource")
    )
  code, out, err = cloud.run("delete", "--yes")
  assert (code, err) == (0, "")
  assert "nothing to delete" in out


def test_a_deletion_that_fails_ends_with_the_reason(cloud):
  cloud.play(["UNREACHABLE"])
  assert "no network" in failed(cloud.run("delete", "--yes"))
  assert named(cloud.heard(), "delete") == []
  cloud.play(
    fails=("queued-resources delete", "PERMISSION_DENIED", "not yours")
  )
  line = failed(cloud.run("delete", "--yes"))
  assert line.endswith("may cost money: PERMISSION_DENIED: not yours")
  cloud.play(["ACTIVE", "DELETING"])
  line = failed(cloud.run("delete", "--yes", TIMEOUT="0"))
  assert "still DELETING after 0 s" in line
