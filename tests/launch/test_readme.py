"""What launch/README.md shows, done."""

import re
import subprocess

import yaml  # comes with transformers

from tests.launch.cloud import ROOT, Cloud

README = (ROOT / "launch" / "README.md").read_text()


def block(holds, kind="sh"):
  """The one block of code that holds this text."""
  blocks = re.findall(rf"```{kind}\n(.*?)```", README, flags=re.DOTALL)
  (one,) = (text for text in blocks if holds in text)
  return one


def bash(script, cloud, folder):
  return subprocess.run(
    ["bash", "-euc", script],
    cwd=folder,
    env={
      "HOME": str(cloud.folder),
      "PATH": f"{cloud.folder / 'bin'}:{cloud.programs}",
      "IMAGE": "registry/specdec:1",
      "POLL": "0",
    },
    capture_output=True,
    text=True,
  )


def test_from_nothing_to_tokens_in_five_commands(tmp_path):
  cloud = Cloud(tmp_path)
  cloud.make_checkout()
  cloud.play(["WAITING_FOR_RESOURCES", "ACTIVE", "ACTIVE", "NOT_FOUND"])
  script = block("launch/tpu_setup.sh")
  joined = script.replace("\\\n", "")
  assert len(joined.splitlines()) == 5
  # Nobody is there to be asked.
  done = bash(script.rstrip() + " --yes\n", cloud, tmp_path / "checkout")
  assert (done.returncode, done.stderr) == (0, "")
  # The environment that setup made has a specdec that says no more than this.
  assert "\nspecdec 0.1\n" in done.stdout
  assert done.stdout.endswith("specdec and its TPU are gone.\n")


def test_the_dry_run_is_what_it_prints(tmp_path):
  cloud = Cloud(tmp_path)
  variables = block("launch/tpu_setup.sh").splitlines()[0]
  _, *calls = re.split(r"^\$ ", block("$ launch", "console"), flags=re.M)
  for call, _, shown in (text.partition("\n") for text in calls):
    done = bash(f"{variables}\n{call}", cloud, ROOT)
    # The checkout's folder, and a name of the run that is another each time.
    printed = done.stdout.replace(str(ROOT), "/home/me/specdec_jax")
    assert re.sub(r"RUN=[^\\]*", "RUN=me.1.1", printed) == shown


def test_variables_and_scripts_are_all_there():
  scripts = sorted((ROOT / "launch").glob("*.sh"))
  text = "".join(script.read_text() for script in scripts)
  for script in scripts:
    assert f"`{script.name}" in README
  for name in re.findall(r"^\| `([A-Z_]+)` \|", README, flags=re.MULTILINE):
    assert name in text or name.startswith("SPECDEC_"), name


def test_the_manifest_is_a_jobset_once_it_is_filled_in(tmp_path):
  cloud = Cloud(tmp_path)
  command, _, _ = block("kubectl apply").partition("|\n  kubectl")
  (job,) = yaml.safe_load_all(bash(command, cloud, ROOT).stdout)
  assert "YOUR_" not in repr(job)
  assert (job["apiVersion"], job["kind"]) == (
    "jobset.x-k8s.io/v1alpha2",
    "JobSet",
  )
  assert job["metadata"]["name"] == "specdec"
  (replicated,) = job["spec"]["replicatedJobs"]
  spec = replicated["template"]["spec"]
  assert spec["parallelism"] == spec["completions"] == 2
  assert (
    job["spec"]["failurePolicy"]["maxRestarts"] == spec["backoffLimit"] == 0
  )
  pod = spec["template"]["spec"]
  assert pod["restartPolicy"] == "Never"
  assert pod["nodeSelector"] == {
    "cloud.google.com/gke-tpu-accelerator": "tpu-v5p-slice",
    "cloud.google.com/gke-tpu-topology": "2x2x2",
  }
  (container,) = pod["containers"]
  assert container["image"] == "registry/specdec:1"
  assert container["command"] == ["specdec"]
  assert container["args"][:2] == ["generate", "--distributed"]
  assert all(isinstance(argument, str) for argument in container["args"])
  (chips,) = container["resources"]["limits"].values()
  assert chips * spec["parallelism"] == 2 * 2 * 2
  assert container["resources"]["limits"] == container["resources"]["requests"]
