#!/usr/bin/env bash
# Runs on each worker of a TPU; the other tpu_*.sh scripts call it through ssh.
#
#   tpu_worker.sh setup            puts the new checkout in its place and installs
#   tpu_worker.sh run ARGUMENT...  runs specdec, in the home folder
#   tpu_worker.sh stop             ends what setup or run began under this RUN, or
#                                  whatever it is if RUN is not set
#
# All is in ~/specdec-jax: checkout, venv, environment (sourced by run), lock.
#
# RUN        tells runs apart
# CACHE_DIR  of setup: where compiled programs are kept, see README.md
set -euo pipefail
home=$HOME/specdec-jax

# alone COMMAND...: runs it if nothing else runs here, since a TPU serves one
# process. The lock is held by all that COMMAND starts, and names its run and
# process group.
alone() {
  local code=0
  exec 9>>"$home/lock"
  if ! flock -n 9; then
    echo "error: another run or setup holds this worker; wait for it, or end" \
      "it with: bash specdec-jax/checkout/launch/tpu_worker.sh stop" >&2
    exit 75
  fi
  set -m # makes the job a group of its own
  "$@" </dev/null &
  set +m
  echo "${RUN:-none} $!" >"$home/lock"
  wait "$!" || code=$?
  # gcloud takes 255 for a broken connection and would run all this again.
  exit $((code == 255 ? 254 : code))
}

stop() {
  local run group
  if [[ ! -e $home/lock ]] || flock -n "$home/lock" true; then
    return
  fi
  read -r run group <"$home/lock"
  if [[ ${RUN:-$run} != "$run" ]]; then
    return
  fi
  kill -TERM -- "-$group" 2>/dev/null || return 0
  # jax may catch that signal, to save its work before a VM is taken away.
  flock -w 10 "$home/lock" true || kill -KILL -- "-$group"
}

# find_python: names in PYTHON one that can make the environment. The images of
# v5e and v6e have 3.10, so else uv fetches one.
find_python() {
  local candidate
  for candidate in python3.13 python3.12 python3.11 python3; do
    if "$candidate" -c 'import ensurepip, sys
sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      PYTHON=$candidate
      return
    fi
  done
  python3 -m pip install --quiet --target "$home/uv" uv
  "$home/uv/bin/uv" venv --quiet --seed --clear --python 3.12 "$VENV"
}

setup() {
  rm -rf "$home/checkout" "$home/environment"
  mv "$home/new" "$home/checkout"
  cd "$home/checkout"
  export VENV=$home/venv PIP_CONSTRAINT=$HOME/specdec-jax-constraints.txt
  if [[ ! -x $VENV/bin/pip ]]; then
    find_python
  fi
  # shellcheck source=launch/environment.sh
  source launch/environment.sh
  use_environment tpu
  local cache=${CACHE_DIR:-$HOME/.cache/specdec-jax}
  printf 'export JAX_COMPILATION_CACHE_DIR=%q\n' "$cache" >"$home/environment"
  specdec --version
  python -m pip freeze --exclude-editable
}

case ${1:-} in
  setup) alone setup ;;
  run)
    # shellcheck source=/dev/null
    source "$home/environment"
    export PATH=$home/venv/bin:$PATH PYTHONUNBUFFERED=1
    alone specdec "${@:2}"
    ;;
  stop) stop ;;
  *) echo "error: tpu_worker.sh takes setup, run or stop" >&2 && exit 2 ;;
esac
