#!/usr/bin/env bash
# Runs the tests, in a virtual environment that it makes if there is none.
#
#   launch/test.sh [PYTEST ARGUMENTS]
#
# Left out are tests that need more than Python: a real model pair, a TPU
# compiler, a browser. `-m real` and the like select them; see CONTRIBUTING.md.
#
# PYTHON, VENV     see environment.sh
# SPECDEC_TORCH=1  also installs torch, for parity with transformers
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source launch/environment.sh

extras="test"
if [[ ${SPECDEC_TORCH:-0} == 1 ]]; then
  extras+=,torch
fi
use_environment "$extras"
# worksteal: the slow tests sit together, and one worker would get them all.
exec python -m pytest -n 2 --dist worksteal \
  -m "not (real or aot or notebook or browser)" "$@"
