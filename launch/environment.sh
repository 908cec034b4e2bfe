# shellcheck shell=bash
# Sourced by the other scripts, in the folder of the checkout: makes the
# virtual environment if there is none, installs the checkout into it, and puts
# its programs first on PATH.
#
# VENV    the environment's folder, default .venv
# PYTHON  the interpreter that makes it, default python3

# use_environment [EXTRAS]: EXTRAS as pip takes them, "test,torch" for example.
use_environment() {
  local extras=${1:-}
  local python=${PYTHON:-python3}
  local venv=${VENV:-.venv}

  # A folder without pip is what a failed attempt left.
  if [[ ! -x $venv/bin/pip ]]; then
    if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
      echo "error: $python is not Python 3.11 or newer;" \
        "name one with PYTHON=/path/to/python3" >&2
      return 1
    fi
    echo "Making a virtual environment in $venv" >&2
    if ! "$python" -m venv "$venv"; then
      echo "error: $python cannot make virtual environments;" \
        "on Debian and Ubuntu: apt install python3-venv" >&2
      return 1
    fi
  fi
  PATH=$(cd "$venv" && pwd)/bin:$PATH

  # While these extras are installed and pyproject.toml is older, there is
  # nothing to do, and no network is needed.
  local stamp=$venv/specdec-installed${extras:+-$extras}
  if [[ ! $stamp -nt pyproject.toml ]]; then
    local what=.${extras:+[$extras]}
    echo "Installing $what, which can take a few minutes" >&2
    python -m pip install --quiet --editable "$what"
    touch "$stamp"
  fi
}
