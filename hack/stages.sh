# Sourced by the scripts that run long steps: run_stages NAME ... calls stage_NAME for each, shows its progress,
# and stops at the first that fails. The caller sets `self` to its own path from the current folder.

# As in the Makefile.
export CGO_ENABLED=0 GOFLAGS="-buildvcs=false -trimpath -gcflags=all=-dwarf=false"

require_linux_root() {
  local missing=()
  [ "$(uname -s)" = Linux ] || missing+=("this needs Linux (this is $(uname -s))")
  [ "$(id -u)" = 0 ] || missing+=("this needs root: block devices, mounts and namespaces are real here")
  command -v go >/dev/null || missing+=("Go is not installed or not on the PATH; go.mod names the version")
  [ -e /dev/fuse ] || missing+=("/dev/fuse is missing: the kernel has no FUSE, or the container does not pass it on")
  [ -e /dev/loop-control ] || missing+=("/dev/loop-control is missing: the kernel has no loop devices, or the container does not pass them on")
  local free_gib
  free_gib=$(df --output=avail -BG . | tail -1 | tr -dc 0-9)
  [ "$free_gib" -ge 15 ] || missing+=("15 GiB of free disk are needed for building Kubernetes; $free_gib GiB are free here")
  if [ ${#missing[@]} -gt 0 ]; then
    echo "This cannot run here:" >&2
    printf '  - %s\n' "${missing[@]}" >&2
    exit 1
  fi
}

# The folder of the stages' output.
log_dir=out/test
# The stages of this run, as given to run_stages.
all_stages=()

# run_stages STAGE ... [lane NICE AFTER STAGE ...] ...: the stages of a lane run one after the other, in parallel to the others, with priority NICE,
# as soon as the stage AFTER, one of the first, has ended. $self is the path of the calling script, which runs the lanes.
run_stages() {
  require_linux_root
  mkdir -p "$log_dir"
  rm -f "$log_dir"/*.passed "$log_dir"/*.failed
  local front=() nices=() afters=() lanes=() missing=() stage i
  all_stages=()
  while [ $# -gt 0 ] && [ "$1" != lane ]; do front+=("$1"); shift; done
  all_stages=("${front[@]}")
  while [ $# -gt 0 ]; do
    nices+=("$2") afters+=("$3") lanes+=("")
    shift 3
    while [ $# -gt 0 ] && [ "$1" != lane ]; do lanes[-1]+=" $1"; all_stages+=("$1"); shift; done
  done
  trap 'end_lanes; kill -TERM $(jobs -p) 2>/dev/null; wait; exit 130' INT TERM
  for stage in "${front[@]}"; do
    run_stage "$stage" || { end_lanes; break; }
    for i in "${!lanes[@]}"; do
      [ "${afters[i]}" = "$stage" ] || continue
      # Its own session, because the kernel first shares time among sessions, and then within them.
      setsid "$BASH" "$self" --lane "${nices[i]}" ${lanes[i]} &
    done
  done
  # The result of a lane is in the files of its stages, not in the status of wait: bash forgets the status of a process when another one
  # gets its process ID. With 32768 IDs that happens before the longest stage has ended.
  wait
  for stage in "${all_stages[@]}"; do [ -e "$log_dir/$stage.passed" ] || missing+=("$stage"); done
  if [ ${#missing[@]} -gt 0 ]; then
    echo "$(find "$log_dir" -maxdepth 1 -name '*.failed' | wc -l) failed; failed or not run to the end: ${missing[*]}"
    return 1
  fi
  echo "${#all_stages[@]} passed, 0 failed"
}

# await_stage NAME waits, in one of the first stages, until a stage of a lane has ended. It fails if a stage has failed. It does not wait if the
# stage is not part of the run.
await_stage() {
  [[ " ${all_stages[*]} " == *" $1 "* ]] || return 0
  until [ -e "$log_dir/$1.passed" ]; do
    if compgen -G "$log_dir/*.failed" >/dev/null; then return 1; fi
    sleep 0.2
  done
}

# end_lanes ends the lanes that still run. Each is a session and so a process group. It skips those that have ended: another process may have their ID.
end_lanes() {
  local pid
  for pid in $(jobs -rp); do kill -TERM -- "-$pid" 2>/dev/null; done
}

# run_lane NICE STAGE ... runs the stages of a lane.
run_lane() {
  local stage nice=$1
  renice -n "$nice" $$ >/dev/null
  if [ -e /proc/self/autogroup ]; then echo "$nice" >/proc/$$/autogroup; fi
  for stage in "${@:2}"; do
    run_stage "$stage" || return 1
  done
}

# run_stage runs one stage with its output in a file, and prints the result.
run_stage() {
  local stage=$1 started=$SECONDS log="$log_dir/$1.log" pid
  echo "=== $stage (log: $log)"
  "stage_$stage" >"$log" 2>&1 </dev/null &
  pid=$!
  show_progress "$pid" "$stage" "$log" "$started"
  if ! wait "$pid"; then
    touch "$log_dir/$stage.failed"
    echo "=== $stage FAILED after $((SECONDS - started)) s; what it said:"
    tail -n 120 "$log"
    # The message of a test stands before the logs of its processes. It comes last here, where it is read.
    echo "--- $stage: what failed, and what its tests said:"
    grep -a -n -E '^( *--- FAIL|FAIL|panic:)|^ +[a-z_]+\.go:[0-9]+: |\bError\b|^WARNING: DATA RACE' "$log" | cut -c1-2000 | tail -60
    return 1
  fi
  touch "$log_dir/$stage.passed"
  echo "=== $stage passed in $((SECONDS - started)) s"
  # The summary of a stage, if it has one. A stage without such a line has passed too.
  grep -a -E '^(ok |Ran |SUCCESS|METRIC|[0-9]+ passed)|histories, [0-9]+ steps' "$log" | tail -60 || true
}

show_progress() {
  local pid=$1 stage=$2 log=$3 started=$4
  while kill -0 "$pid" 2>/dev/null; do
    for _ in {1..15}; do
      sleep 1
      kill -0 "$pid" 2>/dev/null || return 0
    done
    echo "    $stage: $((SECONDS - started)) s: $(tail -n 1 "$log" | cut -c1-140)"
  done
}
