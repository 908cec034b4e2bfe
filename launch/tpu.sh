# shellcheck shell=bash
# Sourced by the tpu_*.sh scripts: how they read their arguments, call gcloud,
# fail with one line, and run a command on all workers of a TPU.
# shellcheck disable=SC2034  # some of what is set here is for them

dry_run=0
flags=' '      # those that were given, with a space around each
arguments=()   # the others
run_id=$HOSTNAME.$$.$RANDOM
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# die MESSAGE [CODE]: ends the script with one line that says why.
die() {
  printf 'error: %s\n' "${1//$'\n'/ }" >&2
  exit "${2:-1}"
}

# usage: the comment at the head of the script.
usage() {
  awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "$0"
}

# misused MESSAGE: ends a script that was called in a wrong way.
misused() {
  usage >&2
  die "$1" 2
}

# read_arguments FLAGS ARGUMENT...: FLAGS are those that this script knows
# beside --dry_run and --help, with spaces between. What follows `--` is never a
# flag.
read_arguments() {
  local known=" --dry_run $1 "
  shift
  while [[ $# -gt 0 ]]; do
    case $1 in
      -h | --help) usage && exit ;;
      --) shift && break ;;
      -*)
        [[ $known == *" $1 "* ]] || misused "there is no flag $1"
        flags+="$1 "
        ;;
      *) arguments+=("$1") ;;
    esac
    shift
  done
  arguments+=("$@")
  if given --dry_run; then
    dry_run=1
  elif ! command -v gcloud >/dev/null; then
    die "gcloud is not installed; see https://cloud.google.com/sdk/docs/install"
  fi
}

given() { [[ $flags == *" $1 "* ]]; }

# need VARIABLE WHAT: ends the script if the variable is unset or empty.
need() {
  (: "${!1:?}") 2>/dev/null || die "$1 is not set; set it to $2" 2
}

# need_seconds VARIABLE DEFAULT: ends the script if it is not a whole number.
need_seconds() {
  printf -v "$1" %s "${!1:-$2}"
  [[ ${!1} =~ ^(0|[1-9][0-9]{0,8})$ ]] ||
    die "$1=${!1} is not a whole number of seconds, of 9 digits at most" 2
}

# need_tpu: the variables that name the TPU, and from them the flags that every
# command about it needs. --quiet: nobody sees a question that gcloud asks.
need_tpu() {
  need NAME "a name for the TPU, such as specdec"
  need ZONE "a zone that has such TPUs, such as us-west4-a"
  local fields='state.state,state.stateInitiator,'
  fields+='tpu.nodeSpec[0].node.acceleratorType,state.failedData.error.message'
  common=(--zone="$ZONE" ${PROJECT:+--project="$PROJECT"} --quiet)
  describe=(gcloud compute tpus queued-resources describe "$NAME"
    --format="value[separator=\"|\"]($fields)" "${common[@]}")
  logs=${LOGS:-runs/$NAME}
  delete_it="NAME=$NAME ZONE=$ZONE launch/tpu_delete.sh deletes it"
}

# run COMMAND...: runs it, or under --dry_run prints it. What it writes to
# stderr is kept for `reason`.
run() {
  if [[ $dry_run == 1 ]]; then
    printf '%q' "$1"
    printf ' %q' "${@:2}"
    echo
  else
    "$@" 2>"$work/errors"
  fi
}

# reason: the line of the last failed command that says why it failed.
reason() {
  local line
  line=$(grep -a -m 1 '^ERROR: ' "$work/errors") ||
    line=$(last_line "$work/errors")
  line=${line#ERROR: }
  [[ $line != '(gcloud.'*') '* ]] || line=${line#*) }
  printf '%s' "$line"
}

# last_line FILE: of a progress bar too only what it showed last.
last_line() {
  tr '\r' '\n' <"$1" | grep -a '[^[:space:]]' | tail -n 1 | cut -c 1-300 ||
    printf 'it gave no reason'
}

# describe_request: asks for the queued resource and sets state, initiator, kind
# of accelerator and message. States beside those of the API: NOT_FOUND; UNKNOWN,
# if gcloud could not tell.
describe_request() {
  local told
  initiator='' kind='' message=''
  if told=$(run "${describe[@]}"); then
    IFS='|' read -r state initiator kind message <<<"${told//$'\n'/ }"
    [[ -n $state ]] || state=UNKNOWN message='gcloud said nothing'
  elif not_found; then
    state=NOT_FOUND
  else
    state=UNKNOWN message=$(reason)
  fi
}

# not_found: whether the last failed command says that there is no such request.
not_found() {
  grep -qE '^ERROR: (\([^)]*\) )?NOT_FOUND: ' "$work/errors"
}

# count_workers: sets workers, from WORKERS or by asking. --dry_run asks nobody
# and takes one.
count_workers() {
  workers=${WORKERS:-}
  if [[ -n $workers ]]; then
    [[ $workers =~ ^[1-9][0-9]{0,3}$ ]] ||
      die "WORKERS=$workers is not a whole number from 1 to 9999" 2
    return
  fi
  local ask=(gcloud compute tpus tpu-vm describe "$NAME"
    --format='value(networkEndpoints.len())' "${common[@]}")
  if [[ $dry_run == 1 ]]; then
    run "${ask[@]}"
    workers=1
    return
  fi
  workers=$(run "${ask[@]}") ||
    die "there is no TPU $NAME to be had in $ZONE: $(reason)"
  [[ $workers =~ ^[1-9][0-9]*$ ]] ||
    die "gcloud names no workers of $NAME; set WORKERS to how many it has"
}

make_logs() {
  mkdir -p "$logs" 2>/dev/null || die "no folder $logs can be made; set LOGS"
}

# on_workers COMMAND [SHOWN]: runs it on all workers at once, each with its
# output in LOGS/worker-N.log; that of worker SHOWN also comes here. Ends the
# script with the exit code of the first that fails. The others get GRACE seconds
# to notice.
#
# One gcloud for each, so that their outputs and exit codes stay apart.
on_workers() {
  local command="export RUN=$run_id; $1"
  local shown=${2:-none} since='' worker code
  if [[ $dry_run == 1 ]]; then
    for ((worker = 0; worker < workers; worker++)); do
      on_worker "$worker" "$command"
    done
    return
  fi
  need_seconds GRACE 60
  make_logs
  rm -f "$logs"/worker-*.log
  trap 'interrupted 130' INT
  trap 'interrupted 143' TERM
  trap 'interrupted 129' HUP
  # Job control: each is a group of its own, which Ctrl-C does not reach and
  # which can be ended as a whole.
  set -m
  for ((worker = 0; worker < workers; worker++)); do
    log_worker "$worker" "$command" "$shown" </dev/null &
  done
  set +m
  while [[ -n $(jobs -pr) ]]; do
    if [[ -s $work/failed ]]; then
      since=${since:-$SECONDS}
      if ((SECONDS - since >= GRACE)); then
        stop_workers
      fi
    fi
    sleep 0.2
  done
  trap - INT TERM HUP
  if [[ -s $work/failed ]]; then
    read -r worker code <"$work/failed"
    die "worker $worker failed first, with exit code $code: $(
      last_line "$logs/worker-$worker.log"
    ) ($logs/worker-$worker.log)" "$code"
  fi
}

# on_worker N COMMAND: N may be "all". ssh alone would wait forever for a VM that
# was taken away.
on_worker() {
  local call=(gcloud compute tpus tpu-vm ssh "$NAME" --worker="$1"
    --command="$2" --ssh-flag=-oConnectTimeout=10
    --ssh-flag=-oServerAliveInterval=15 "${common[@]}")
  if [[ $dry_run == 1 ]]; then
    run "${call[@]}"
  else
    "${call[@]}"
  fi
}

# log_worker N COMMAND SHOWN: notes a failure in the order in which they happen.
log_worker() {
  local log=$logs/worker-$1.log code=0
  : >"$log"
  if [[ $1 == "$3" ]]; then
    {
      { on_worker "$1" "$2" 2>&1 >&3 3>&- | tee -a "$log" >&2; } 3>&1 |
        tee -a "$log"
    } || code=$?
  else
    on_worker "$1" "$2" >>"$log" 2>&1 || code=$?
  fi
  [[ $code == 0 ]] || echo "$1 $code" >>"$work/failed"
}

# stop_workers: ends the connections, so that none of them begins something any
# more, and then what runs on the workers, which that alone does not end.
stop_workers() {
  local group
  for group in $(jobs -p); do
    kill -TERM -- "-$group" 2>/dev/null || true
  done
  wait 2>/dev/null || true
  on_worker all \
    "RUN=$run_id bash specdec-jax/checkout/launch/tpu_worker.sh stop" \
    </dev/null >/dev/null 2>&1 || true
}

# interrupted CODE: a second Ctrl-C does not wait for the workers.
interrupted() {
  trap - INT TERM HUP
  stop_workers
  die "interrupted; what ran on the workers of $NAME was told to end" "$1"
}
