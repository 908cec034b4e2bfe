#!/usr/bin/env bash
# Installs this checkout on all workers of a TPU. It may be run again at any
# time, after a new commit for example.
#
#   NAME=.. ZONE=.. launch/tpu_setup.sh [--dry_run]
#
# --dry_run  prints the commands instead of running them
#
# What is committed is sent, installed as `.[tpu]` into a virtual environment of
# Python 3.11 or newer, and compiled programs are kept between runs. The versions
# of the packages are those in CONSTRAINTS; all workers must end with the same
# ones, which are noted in LOGS/installed.txt.
#
# NAME, ZONE, PROJECT, WORKERS, LOGS, GRACE  see README.md
# CONSTRAINTS  a constraints file for pip, such as an earlier installed.txt;
#              default launch/constraints.txt; /dev/null for the newest ones
#              that pyproject.toml allows
# CACHE_DIR    for compiled programs, on the workers or gs://..; default
#              ~/.cache/specdec-jax. Programs in it are run: nobody else may
#              write to it.
set -euo pipefail
launch=$(dirname "${BASH_SOURCE[0]}")
# shellcheck source=launch/tpu.sh
source "$launch/tpu.sh"
read_arguments '' "$@"
[[ ${#arguments[@]} == 0 ]] || misused "what is ${arguments[0]}?"
need_tpu

CONSTRAINTS=${CONSTRAINTS:-$launch/constraints.txt}
if [[ ! -r $CONSTRAINTS || -d $CONSTRAINTS ]]; then
  die "CONSTRAINTS=$CONSTRAINTS is not a file" 2
fi
changes=$(git -C "$launch/.." status --porcelain 2>/dev/null) ||
  die "the folder above launch/ must be a git checkout: its commit is sent"
if [[ -n $changes ]]; then
  echo "warning: changes that are not committed are not sent" >&2
fi
count_workers

[[ $logs == /* ]] || logs=$PWD/$logs # git runs in another folder
archive=$logs/specdec-jax.tar.gz
constraints=$logs/specdec-jax-constraints.txt
[[ $dry_run == 1 ]] || make_logs
run cp "$CONSTRAINTS" "$constraints" ||
  die "$constraints cannot be written: $(reason)"
run git -C "$launch/.." archive --format=tar.gz --output="$archive" HEAD ||
  die "no archive of the checkout was made: $(reason)"
run gcloud compute tpus tpu-vm scp "$archive" "$constraints" "$NAME:" \
  --worker=all "${common[@]}" ||
  die "nothing was sent to the workers: $(reason)"

# tar -m: so that pyproject.toml is newer than what was installed before, and is
# installed again.
command='set -e; mkdir -p specdec-jax; rm -rf specdec-jax/new'
command+='; mkdir specdec-jax/new'
command+='; tar -xzmf specdec-jax.tar.gz -C specdec-jax/new'
command+="; CACHE_DIR=$(printf %q "${CACHE_DIR:-}")"
command+=' exec bash specdec-jax/new/launch/tpu_worker.sh setup'
if [[ $dry_run == 0 ]]; then
  echo "Setting up $workers worker(s), which takes minutes; logs are in $logs"
fi
on_workers "$command"
[[ $dry_run == 0 ]] || exit 0

for ((worker = 0; worker < workers; worker++)); do
  grep -E '^[A-Za-z0-9._-]+==' "$logs/worker-$worker.log" >"$work/$worker" ||
    die "worker $worker lists no packages ($logs/worker-$worker.log)"
  cmp -s "$work/0" "$work/$worker" || die "worker $worker has other versions of \
packages than worker 0 ($logs/worker-*.log); run this again"
done
cp "$work/0" "$logs/installed.txt"
echo "$NAME is set up. Next: launch/tpu_run.sh -- generate --prompt ..."
