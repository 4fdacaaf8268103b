#!/usr/bin/env bash
# Tests hack/stages.sh with stages that do nothing, in a PID namespace of its own. Usage: hack/stages-test.sh
set -uo pipefail
cd "$(dirname "$0")/.."
if [ $$ != 1 ] && [ "${1-}" != --lane ]; then
  STAGES_TEST_DIR=$(mktemp -d)
  export STAGES_TEST_DIR
  trap 'rm -rf "$STAGES_TEST_DIR"' EXIT
  unshare --pid --fork --mount-proc --kill-child "$BASH" hack/stages-test.sh
  exit
fi
self=hack/stages-test.sh
. hack/stages.sh
log_dir=$STAGES_TEST_DIR/logs

stage_first()  { :; }
stage_second() { :; }
stage_broken() { return 3; }
stage_beside() { :; }
stage_endless() { touch "$log_dir/endless.began"; sleep 600; }
stage_broken-beside-endless() {
  until [ -e "$log_dir/endless.began" ]; do sleep 0.1; done
  return 3
}
# Does not end before another stage waits for it.
stage_slow() { until [ -e "$log_dir/awaits.began" ]; do sleep 0.1; done; touch "$log_dir/slow.ended"; }
stage_awaits() {
  touch "$log_dir/awaits.began"
  await_stage slow && [ -e "$log_dir/slow.ended" ]
}
stage_awaits-nothing() { await_stage slow; }
# Waits until the lane has ended. Then the kernel gives the lane's process ID to the next process of the shell that started it.
stage_reuse() {
  local lane end
  until [ -e "$log_dir/beside.passed" ]; do sleep 0.1; done
  lane=$(cat "$log_dir/lane.pid")
  while kill -0 "$lane" 2>/dev/null; do sleep 0.1; done
  end=$((SECONDS + 4))
  while [ $SECONDS -lt $end ]; do echo $((lane - 1)) >/proc/sys/kernel/ns_last_pid; done
}

if [ "${1-}" = --lane ]; then
  echo $$ >"$log_dir/lane.pid"
  run_lane "${@:2}"
  exit
fi

failed=0
# expect STATUS LAST-LINE STAGE ...: the expected status and last line of run_stages.
expect() {
  local status=0 last
  rm -rf "$log_dir"
  ( run_stages "${@:3}" ) >"$STAGES_TEST_DIR/out" 2>&1 || status=$?
  last=$(tail -n 1 "$STAGES_TEST_DIR/out")
  if [ "$status" = "$1" ] && [ "$last" = "$2" ]; then
    echo "ok   run_stages ${*:3}: $last"
    return
  fi
  echo "FAIL run_stages ${*:3}: status $status, not $1; it ends with \"$last\", not \"$2\":"
  cat "$STAGES_TEST_DIR/out"
  failed=1
}

expect 0 "2 passed, 0 failed" first second
expect 1 "1 failed; failed or not run to the end: broken second" first broken second
expect 0 "3 passed, 0 failed" first second lane 0 first beside
expect 1 "1 failed; failed or not run to the end: broken beside" first second lane 19 first broken beside
expect 1 "1 failed; failed or not run to the end: broken-beside-endless endless" first broken-beside-endless lane 0 first endless
# A stage that needs the output of a lane.
expect 0 "3 passed, 0 failed" first awaits lane 0 first slow
expect 0 "3 passed, 0 failed" first awaits-nothing lane 0 first beside
expect 1 "2 failed; failed or not run to the end: awaits broken slow" first awaits lane 0 first broken slow
# A lane whose process ID another process has now.
expect 0 "3 passed, 0 failed" first reuse lane 0 first beside
expect 1 "1 failed; failed or not run to the end: broken" first reuse lane 0 first beside broken
exit $failed
