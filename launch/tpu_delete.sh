#!/usr/bin/env bash
# Deletes a queued resource and its TPU, and waits until they are gone.
#
#   NAME=.. ZONE=.. launch/tpu_delete.sh [--yes] [--dry_run]
#
# --yes      does not ask
# --dry_run  prints the commands instead of running them
#
# What is on the TPU's disks is lost: get results with launch/tpu_sync.sh before.
# That there is nothing to delete is no failure.
#
# NAME, ZONE, PROJECT  see README.md
# TIMEOUT  seconds to wait, default 600
# POLL     seconds between two looks, default 20
set -euo pipefail
# shellcheck source=launch/tpu.sh
source "$(dirname "${BASH_SOURCE[0]}")/tpu.sh"
read_arguments --yes "$@"
[[ ${#arguments[@]} == 0 ]] || misused "what is ${arguments[0]}?"
need_tpu
need_seconds TIMEOUT 600
need_seconds POLL 20

# --force: the TPU as well, without which an ACTIVE request is not deleted.
delete=(gcloud compute tpus queued-resources delete "$NAME" --force
  "${common[@]}")
if [[ $dry_run == 1 ]]; then
  run "${delete[@]}"
  run "${describe[@]}"
  exit
fi
if ! given --yes && [[ ! -t 0 ]]; then
  die "there is no terminal to ask on; --yes deletes $NAME without asking"
fi

nothing() {
  echo "There is no queued resource $NAME in $ZONE: nothing to delete."
  exit
}
describe_request
case $state in
  NOT_FOUND) nothing ;;
  UNKNOWN) die "cannot ask for $NAME, so nothing was deleted: $message" ;;
esac
if ! given --yes; then
  read -r -p "Delete queued resource $NAME and its TPU? [y/N] " answer || true
  [[ ${answer:-} == [yY]* ]] || die "nothing was deleted, and $NAME is $state"
fi
if ! run "${delete[@]}"; then
  why=$(reason)
  ! not_found || nothing
  die "$NAME was not deleted and may cost money: $why"
fi
while true; do
  describe_request
  [[ $state != NOT_FOUND ]] || break
  ((SECONDS < TIMEOUT)) || die "$NAME is still $state after $TIMEOUT s and may \
cost money; look with: gcloud compute tpus queued-resources list --zone=$ZONE"
  sleep "$POLL"
done
echo "$NAME and its TPU are gone."
