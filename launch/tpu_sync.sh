#!/usr/bin/env bash
# Copies checkpoints or results to a bucket, or from it: what is new or has
# changed. Nothing is deleted.
#
#   launch/tpu_sync.sh [--workers] [--dry_run] up|down LOCAL gs://BUCKET/PATH
#
# --workers  LOCAL is a folder on the TPU, relative to the home folder there: up
#            from worker 0, which writes the results, down to all. Else it is one
#            here.
# --dry_run  prints the commands instead of running them
#
# With --workers the TPU's service account must be allowed to use the bucket.
#
# PROJECT                             see README.md
# NAME, ZONE, WORKERS, LOGS, GRACE    see README.md; with --workers only
set -euo pipefail
# shellcheck source=launch/tpu.sh
source "$(dirname "${BASH_SOURCE[0]}")/tpu.sh"
read_arguments --workers "$@"
[[ ${#arguments[@]} == 3 ]] || misused "three arguments are needed"
direction=${arguments[0]} local=${arguments[1]} bucket=${arguments[2]}
[[ $direction == up || $direction == down ]] ||
  misused "$direction is neither up nor down"
[[ $bucket == gs://?*/?* ]] || misused "$bucket is not of the form gs://BUCKET/PATH"
[[ $local != -* ]] || local=./$local

sync=(gcloud storage rsync --recursive)
if [[ $direction == up ]]; then
  sync+=("$local" "$bucket")
else
  sync+=("$bucket" "$local")
fi

if given --workers; then
  need_tpu
  if [[ $direction == up ]]; then
    workers=1
    command="test -n \"\$(ls -A $(printf %q "$local") 2>/dev/null)\" || {"
    command+=' echo "the folder is missing or empty" >&2; exit 1; };'
  else
    count_workers
    command="mkdir -p $(printf %q "$local");"
  fi
  on_workers "$command$(printf ' %q' "${sync[@]}")"
else
  if [[ $direction == down ]]; then
    run mkdir -p "$local" || die "cannot make the folder $local: $(reason)"
  elif [[ ! -d $local || -z $(ls -A "$local") ]]; then
    die "$local is not a folder with something in it"
  fi
  sync+=(${PROJECT:+--project="$PROJECT"} --quiet)
  run "${sync[@]}" || die "$local and $bucket are not the same yet: $(reason)"
fi
[[ $dry_run == 1 ]] || echo "Copied ${sync[4]} to ${sync[5]}"
