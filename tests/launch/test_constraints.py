"""launch/constraints.txt pins what pyproject.toml asks for."""

import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.launch.cloud import ROOT


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_all_that_a_tpu_needs_is_pinned(python):
  project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
  needed = [
    *project["dependencies"],
    *project["optional-dependencies"]["tpu"],
    "libtpu",
  ]
  environment = {
    "python_version": python,
    "python_full_version": f"{python}.0",
    "sys_platform": "linux",
    "platform_machine": "x86_64",
  }
  lines = (ROOT / "launch" / "constraints.txt").read_text().splitlines()
  pins = {}
  for line in lines:
    if line.startswith("#"):
      continue
    pin = Requirement(line)
    if pin.marker is None or pin.marker.evaluate(environment):
      (version,) = pin.specifier
      assert version.operator == "=="
      assert pins.setdefault(canonicalize_name(pin.name), version) is version
  for requirement in map(Requirement, needed):
    version = pins[canonicalize_name(requirement.name)].version
    assert requirement.specifier.contains(version), requirement
