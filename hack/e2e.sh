#!/usr/bin/env bash
# The end-to-end stage of the tests: a real cluster on this machine, the chart installed, a pod moved with
# the history of its records checked, the chart upgraded and removed, and nothing left behind.
set -euo pipefail
cd "$(dirname "$0")/.."
state=$(mktemp -d)
export PLAYGROUND_STATE="${PLAYGROUND_STATE:-$state/playground}"
cleanup() {
  local status=$?
  bin/playground down || status=1
  rm -rf "$state"
  exit $status
}
trap cleanup EXIT
trap 'exit 130' INT TERM
bin/playground up
bin/playground run planned-move --out out/e2e
bin/playground run chart-lifecycle --out out/e2e
