"""A cloud of one machine: gcloud, specdec and pip that only listen and play."""

import ast
import os
import pathlib
import shutil
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]

# All that the scripts may call, here and on the workers. A gcloud that is
# installed is never on their path: it would rent TPUs.
PROGRAMS = (
  *("awk", "bash", "cat", "cmp", "cp", "cut", "dirname", "env", "flock", "git"),
  *("grep", "gzip", "ls", "mkdir", "mktemp", "mv", "rm", "sed", "sh", "sleep"),
  *("tail", "tar", "tee", "touch", "tr", "true"),
)

# What each program hears goes to a file, the literal of a list for each call.
# They import next to nothing, since the tests start hundreds of them.
LISTEN = r"""
import os, sys
argv = sys.argv[1:]
words = " ".join(argv)
def listen(file, what=argv):
  with open(file, "a") as heard:
    print(repr(what), file=heard)
"""

GCLOUD = r"""
here = os.getcwd()
cloud = os.path.dirname(os.path.dirname(sys.argv[0]))
os.chdir(cloud)
listen("heard")
play = eval(open("play").read())

def fail(text, code=1):
  print(text, file=sys.stderr)
  sys.exit(code)

def error(status, text):
  fail(f"ERROR: (gcloud.some.command) {status}: {text}\n- '@type': more")

def flag(name):
  return next(a.partition("=")[2] for a in argv if a.startswith(name + "="))

def ssh(worker):
  os.chdir(f"worker-{worker}")
  path = ":".join(os.path.join(cloud, p) for p in ("worker-bin", "programs"))
  environment = {"HOME": os.getcwd(), "PATH": path}
  os.execvpe("bash", ["bash", "-c", flag("--command")], environment)

if "queued-resources describe" in words:
  open("seen", "a").write(".")
  seen = os.path.getsize("seen")
  now = play["states"][min(seen, len(play["states"])) - 1]
  if now == "NOT_FOUND":
    error("NOT_FOUND", "Resource 'tpu' was not found")
  if now == "UNREACHABLE":
    fail("ERROR: gcloud crashed (ConnectionError): no network")
  state, initiator, kind, message = [*now.split("|", 3), "", "", ""][:4]
  print("|".join([state, initiator, kind or "v6e-8", message]))
elif "tpu-vm describe" in words:
  if not play["workers"]:
    error("NOT_FOUND", "Resource 'tpu' was not found")
  print(play["workers"])
elif "tpu-vm ssh" in words:
  worker = flag("--worker")
  if worker == "all":
    for worker in range(play["workers"]):
      os.fork() or ssh(worker)
    sys.exit(max(os.wait()[1] for _ in range(play["workers"])) > 0)
  if int(worker) in play["down"]:
    fail("ERROR: (gcloud.compute.tpus.tpu-vm.ssh) [/usr/bin/ssh] exited with"
         " return code [255].", 255)
  ssh(worker)
elif "tpu-vm scp" in words and not play["fails"]:
  *files, to = [a for a in argv[argv.index("scp") + 1:] if a[:2] != "--"]
  assert to == "specdec:" and flag("--worker") == "all"
  files = [os.path.join(here, file) for file in files]
  for worker in range(play["workers"]):
    os.spawnvp(os.P_WAIT, "cp", ["cp", *files, f"worker-{worker}"])
if play["fails"] and play["fails"][0] in words:
  error(*play["fails"][1:])
"""

# The file `behaviour` of the worker says what it does then.
SPECDEC = r"""
home = os.environ["HOME"]
listen(os.path.join(home, "heard"))
behaviour = os.path.join(home, "behaviour")
if os.path.exists(behaviour):
  exec(open(behaviour).read())
"""

# python, pip, uv and what a virtual environment holds, by the name of the call.
PYTHON = r"""
home = os.environ["HOME"]
name = os.path.basename(sys.argv[0])

def make(folder, *names):
  os.makedirs(folder)
  for name in names:
    program = os.path.join(folder, name)
    os.spawnvp(os.P_WAIT, "cp", ["cp", sys.argv[0], program])

def left(file, otherwise):
  file = os.path.join(home, file)
  return open(file).read() if os.path.exists(file) else otherwise

if name == "specdec":
  print("specdec 0.1")
elif argv[0] == "-c":
  sys.exit(name != left("good_python", "python3.13"))
elif words.startswith("-m venv") or (name, argv[0]) == ("uv", "venv"):
  listen(os.path.join(home, "made"), [name, *argv])
  make(os.path.join(argv[-1], "bin"), "pip", "python", "specdec")
elif "--target" in argv:
  make(os.path.join(argv[argv.index("--target") + 1], "bin"), "uv")
elif words.startswith("-m pip install"):
  constraints = open(os.environ["PIP_CONSTRAINT"]).read()
  listen(os.path.join(home, "pip"), [os.getcwd(), constraints, *argv[3:]])
  if left("pip_fails", ""):
    sys.exit("Collecting jax\nERROR: no space left\n")
elif words.startswith("-m pip freeze"):
  print(left("freeze", "jax==0.12.0\nlibtpu==0.0.42"))
"""


def make_program(file: pathlib.Path, does: str) -> None:
  """Writes a Python program."""
  file.parent.mkdir(parents=True, exist_ok=True)
  file.write_text(f"#!{sys.executable} -IS\n{LISTEN}{does}")
  file.chmod(0o755)


def read(file: pathlib.Path) -> list[list[str]]:
  """What a program heard, call by call."""
  lines = file.read_text().splitlines() if file.exists() else []
  return [ast.literal_eval(line) for line in lines]


class Cloud:
  """What the scripts believe to be Google Cloud, and the workers of a TPU."""

  def __init__(self, folder: pathlib.Path):
    self.folder = folder
    self.launch = ROOT / "launch"
    self.here = folder / "here"  # where the caller stands
    self.here.mkdir()
    self.logs = self.here / "runs" / "specdec"
    self.programs = folder / "programs"
    self.programs.mkdir()
    for name in PROGRAMS:
      (self.programs / name).symlink_to(shutil.which(name))
    make_program(folder / "bin" / "gcloud", GCLOUD)
    self.play()

  def play(self, states=("ACTIVE",), workers=1, down=(), fails=None):
    """What comes: states in turn, workers that are down, what fails and how."""
    scenario = {
      "states": states,
      "workers": workers,
      "down": down,
      "fails": fails,
    }
    (self.folder / "play").write_text(repr(scenario))
    for file in ("seen", "heard"):
      (self.folder / file).unlink(missing_ok=True)
    for worker in range(workers):
      self.home(worker).mkdir(exist_ok=True)

  def home(self, worker) -> pathlib.Path:
    return self.folder / f"worker-{worker}"

  def heard(self, worker=None) -> list[list[str]]:
    """What gcloud was called with, or specdec on a worker."""
    who = self.folder if worker is None else self.home(worker)
    return read(who / "heard")

  def install(self, workers, behaviours=None):
    """Leaves on the workers what setup does."""
    self.play(workers=workers)
    for worker in range(workers):
      home = self.home(worker) / "specdec-jax"
      (home / "checkout").mkdir(parents=True)
      (home / "checkout" / "launch").symlink_to(ROOT / "launch")
      (home / "environment").touch()
      make_program(home / "venv" / "bin" / "specdec", SPECDEC)
      if behaviours:
        (self.home(worker) / "behaviour").write_text(behaviours[worker])

  def start(self, verb, *arguments, stdin=subprocess.DEVNULL, **variables):
    """Starts launch/tpu_VERB.sh; a variable that is None is unset."""
    defaults = {
      "PATH": f"{self.folder / 'bin'}:{self.programs}",
      "HOME": str(self.folder),
      "NAME": "specdec",
      "ZONE": "us-west4-a",
      "ACCELERATOR": "v6e-8",
      "POLL": "0",
    }
    variables = defaults | variables
    return subprocess.Popen(
      [self.launch / f"tpu_{verb}.sh", *arguments],
      cwd=self.here,
      env={k: v for k, v in variables.items() if v is not None},
      stdin=stdin,
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
      # Where the tests themselves run in the background, it would be ignored.
      preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )

  def run(self, verb, *arguments, **others) -> tuple[int, str, str]:
    """Runs it to its end; returns the exit code, stdout and stderr."""
    process = self.start(verb, *arguments, **others)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err

  def make_checkout(self):
    """A commit of launch/ to send, and a python for the workers."""
    checkout = self.folder / "checkout"
    checkout.mkdir()
    for name in ("launch", "pyproject.toml"):
      subprocess.run(["cp", "-r", ROOT / name, checkout], check=True)
    self.launch = checkout / "launch"
    self.git("init", "--quiet")
    self.commit()
    for name in ("python3.13", "python3.12", "python3.11", "python3"):
      make_program(self.folder / "worker-bin" / name, PYTHON)

  def commit(self):
    self.git("add", ".")
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    self.git(*who, "commit", "--quiet", "--message=x")

  def git(self, *arguments):
    env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    folder = self.folder / "checkout"
    subprocess.run(["git", *arguments], cwd=folder, env=env, check=True)
