# Sourced by the scripts that run long steps: run_stages NAME ... calls stage_NAME for each, shows what is going on
# while it runs, and stops at the first that fails. Who calls it has its own path, from the current folder, in `self`.

# As in the Makefile.
export CGO_ENABLED=0 GOFLAGS="-buildvcs=false -trimpath"

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

# Where the stages' output goes.
log_dir=out/test

# run_stages STAGE ... [behind STAGE ...]: those after "behind" run one after the other as well, beside the others and with what these leave
# of the processors, once the last stage that they all need, `shared_stage`, is through.
run_stages() {
  require_linux_root
  mkdir -p "$log_dir"
  rm -f "$log_dir"/*.failed
  local stage front=() behind=() into=front pid="" status=0
  for stage in "$@"; do
    if [ "$stage" = behind ]; then into=behind; elif [ $into = front ]; then front+=("$stage"); else behind+=("$stage"); fi
  done
  trap 'kill -TERM $(jobs -p) 2>/dev/null; [ -z "$pid" ] || kill -TERM -- "-$pid" 2>/dev/null; wait; exit 130' INT TERM
  for stage in "${front[@]}"; do
    run_stage "$stage" || { status=1; break; }
    if [ "$stage" = "${shared_stage:-}" ] && [ ${#behind[@]} -gt 0 ]; then
      # A session of its own, because the kernel weighs sessions against each other before it weighs what is in them.
      setsid "$BASH" "$self" --behind "${behind[@]}" &
      pid=$!
    fi
  done
  if [ -n "$pid" ]; then
    [ $status = 0 ] || kill -TERM -- "-$pid" 2>/dev/null
    wait "$pid" || status=1
  fi
  local passed failed
  passed=$(wc -w <<<"${front[*]} ${behind[*]-}")
  failed=$(find "$log_dir" -maxdepth 1 -name '*.failed' | wc -l)
  if [ $status != 0 ]; then
    echo "$failed failed, and what comes after was not run"
    return 1
  fi
  echo "$passed passed, 0 failed"
}

# run_behind runs stages at the lowest priority.
run_behind() {
  local stage
  renice -n 19 $$ >/dev/null
  if [ -e /proc/self/autogroup ]; then echo 19 >/proc/$$/autogroup; fi
  for stage in "$@"; do
    run_stage "$stage" || return 1
  done
}

# run_stage runs one stage, its output in a file, and says how it went.
run_stage() {
  local stage=$1 started=$SECONDS log="$log_dir/$1.log" pid
  echo "=== $stage (log: $log)"
  "stage_$stage" >"$log" 2>&1 </dev/null &
  pid=$!
  show_progress "$pid" "$stage" "$log" "$started"
  if ! wait "$pid"; then
    touch "$log_dir/$stage.failed"
    echo "=== $stage FAILED after $((SECONDS - started)) s; what it said:"
    grep -a -n -E '^(--- FAIL|FAIL|panic:|.*\bError\b)' "$log" | tail -40
    tail -n 120 "$log"
    return 1
  fi
  echo "=== $stage passed in $((SECONDS - started)) s"
  # What a stage has to show, if anything: a stage without such a line has passed just as well.
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
