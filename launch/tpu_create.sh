#!/usr/bin/env bash
# Asks Google Cloud for a TPU, as a queued resource, and waits until it is there.
#
#   NAME=.. ZONE=.. ACCELERATOR=.. launch/tpu_create.sh [--wait] [--dry_run]
#
# --wait     asks for nothing, but waits for what was asked for before
# --dry_run  prints the commands instead of running them
#
# It costs money from when it is ACTIVE until it is deleted.
#
# NAME, ZONE, PROJECT  see README.md
# ACCELERATOR   v5litepod-8 or v6e-8, for example
# RUNTIME       the VM image, by default the one for ACCELERATOR
# PROVISIONING  spot (default; cheap, may be taken away), flex-start or standard
# MAX_RUN       of flex-start: deletes itself after that time, default 4h, at
#               most 7d
# TIMEOUT       seconds to wait, default 3600
# VALID_FOR     when the request lapses if nothing was free, default TIMEOUT
# POLL          seconds between two looks, default 20
set -euo pipefail
# shellcheck source=launch/tpu.sh
source "$(dirname "${BASH_SOURCE[0]}")/tpu.sh"
read_arguments --wait "$@"
[[ ${#arguments[@]} == 0 ]] || misused "what is ${arguments[0]}?"
need_tpu
need_seconds TIMEOUT 3600
need_seconds POLL 20
open="the request may still be granted, and then costs money: $delete_it"
trap 'die "interrupted; $open" 130' INT TERM HUP

create=(compute tpus queued-resources create "$NAME" --node-id="$NAME")
if ! given --wait; then
  need ACCELERATOR "the kind and number of chips, such as v6e-8"
  case $ACCELERATOR in
    v5litepod-*) runtime=v2-alpha-tpuv5-lite ;;
    v6e-*) runtime=v2-alpha-tpuv6e ;;
    *) need RUNTIME "the VM image of $ACCELERATOR, which is neither \
v5litepod-N nor v6e-N; for chips on GKE see launch/README.md" ;;
  esac
  create+=(--accelerator-type="$ACCELERATOR"
    --runtime-version="${RUNTIME:-$runtime}"
    --valid-until-duration="${VALID_FOR:-${TIMEOUT}s}" "${common[@]}")
  case ${PROVISIONING:=spot} in
    spot) create+=(--spot) ;;
    flex-start) # alpha alone knows these flags
      create=(alpha "${create[@]}" --provisioning-model=flex-start
        --max-run-duration="${MAX_RUN:-4h}")
      ;;
    standard) ;;
    *) misused "PROVISIONING=$PROVISIONING is not spot, flex-start or standard" ;;
  esac
  if ! run gcloud "${create[@]}"; then
    why=$(reason)
    grep -qi 'already.exists' "$work/errors" || die "no TPU was asked for: $why"
    describe_request
    if [[ $state == ACTIVE && $kind == "$ACCELERATOR" ]]; then
      die "$NAME exists already and is an ACTIVE $kind: if it is yours, \
go on with launch/tpu_setup.sh; if not, take another NAME"
    fi
    die "the name $NAME is taken (${kind:+$kind, }$state${message:+: \
$message}): take another NAME, wait for this one with --wait, or delete it: \
$delete_it"
  fi
fi
if [[ $dry_run == 1 ]]; then
  run "${describe[@]}"
  exit
fi

shown=''
while true; do
  describe_request
  if [[ $state != "$shown" ]]; then
    printf '%(%H:%M:%S)T %s\n' -1 "$state${message:+: $message}"
    shown=$state
  fi
  case $state in
    ACTIVE) break ;;
    FAILED | SUSPEND* | DELETING | NOT_FOUND)
      die "$NAME is $state${initiator:+ by $initiator}: ${message:-the TPU was \
taken away, deleted, or its time was over}; $delete_it" ;;
  esac
  ((SECONDS < TIMEOUT)) || die "$NAME is $state after $TIMEOUT s${message:+ \
($message)}; $open, launch/tpu_create.sh --wait waits on"
  sleep "$POLL"
done
echo "$NAME is there, and costs money from now on. Next: launch/tpu_setup.sh"
echo "At the end: $delete_it"
