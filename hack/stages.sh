# Sourced by the scripts that run long steps one after the other: run_stages NAME ... calls
# stage_NAME for each, shows what is going on while it runs, and stops at the first that fails.

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

run_stages() {
  require_linux_root
  local log_dir=out/test passed=0 stage started log pid
  mkdir -p "$log_dir"
  for stage in "$@"; do
    log="$log_dir/$stage.log"
    started=$SECONDS
    echo "=== $stage (log: $log)"
    "stage_$stage" >"$log" 2>&1 </dev/null &
    pid=$!
    trap 'kill -TERM $pid 2>/dev/null; wait $pid; exit 130' INT TERM
    show_progress "$pid" "$stage" "$log" "$started"
    if ! wait "$pid"; then
      echo "=== $stage FAILED after $((SECONDS - started)) s; what it said:"
      grep -a -n -E '^(--- FAIL|FAIL|panic:|.*\bError\b)' "$log" | tail -40
      tail -n 120 "$log"
      echo "$passed passed, 1 failed"
      return 1
    fi
    trap - INT TERM
    passed=$((passed + 1))
    echo "=== $stage passed in $((SECONDS - started)) s"
    grep -a -E '^(ok |Ran |SUCCESS|METRIC|[0-9]+ passed)|histories, [0-9]+ steps' "$log" | tail -60
  done
  echo "$passed passed, 0 failed"
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
