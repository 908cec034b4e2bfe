#!/usr/bin/env bash
# Runs a specdec command on all workers of a TPU that launch/tpu_setup.sh has set
# up.
#
#   NAME=.. ZONE=.. launch/tpu_run.sh [--dry_run] -- ARGUMENT...
#
# --dry_run  prints the commands instead of running them
#
# The ARGUMENTS are those of specdec, "generate --prompt .." for example, and
# arrive as they are. Files are those of the workers, relative to the home folder
# there. With more than one worker generate gets --distributed, and they work as
# one; any other command runs on each worker by itself.
#
# What worker N writes goes to LOGS/worker-N.log, that of worker 0 also to the
# terminal. The exit code is that of the first worker that failed. Ctrl-C ends
# the command on the workers.
#
# NAME, ZONE, PROJECT, WORKERS, LOGS, GRACE  see README.md
set -euo pipefail
# shellcheck source=launch/tpu.sh
source "$(dirname "${BASH_SOURCE[0]}")/tpu.sh"
read_arguments '' "$@"
[[ ${#arguments[@]} -gt 0 ]] || misused "which specdec command, after --?"
need_tpu
count_workers

distributed=$((workers > 1))
for argument in "${arguments[@]}"; do
  case $argument in
    --distributed | --distributed=* | --nodistributed) distributed=0 ;;
  esac
done
if [[ $distributed == 1 && ${arguments[0]} == generate ]]; then
  arguments=(generate --distributed "${arguments[@]:1}")
fi
command='test -f specdec-jax/environment || {'
command+=' echo "this worker is not set up; run launch/tpu_setup.sh" >&2; exit 1; }'
command+='; exec bash specdec-jax/checkout/launch/tpu_worker.sh run'
command+=$(printf ' %q' "${arguments[@]}")
on_workers "$command" 0
