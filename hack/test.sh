#!/usr/bin/env bash
# Runs the project's tests, stage by stage. Without arguments: all stages, which is what CI runs.
# Usage: hack/test.sh [STAGE ...]; a named stage does the set-up that it needs first.
# Each stage's output goes to out/test/STAGE.log; the end of it is shown where a stage fails.
set -uo pipefail
cd "$(dirname "$0")/.."
. hack/stages.sh

all=(packages build programs verify lint unit playground-unit simulation sanity chaos e2e)

needs() {
  case "$1" in
    unit|sanity|chaos|e2e) echo "packages build programs" ;;
    verify) echo "packages build programs" ;;
    programs) echo "packages build" ;;
    *) echo "" ;;
  esac
}

stage_packages()        { hack/install-packages.sh; }
stage_build()           { make --no-print-directory build; }
stage_programs()        { bin/playground programs ensure; }
stage_verify()          { hack/verify.sh; }
stage_lint()            { make --no-print-directory lint; }
stage_unit()            { CGO_ENABLED=1 GOFLAGS=-buildvcs=false go test -race -shuffle=on -timeout 20m $(go list ./... | grep -v -e /test/sanity -e /test/chaos -e /test/bench -e /test/simulation); }
stage_playground-unit() { (cd playground && go test -shuffle=on -timeout 10m ./...); }
# The simulation is the same for the same code, so Go may remember that it passed, also in another clone.
stage_simulation()      { go test -timeout 15m -v ./test/simulation; }
stage_sanity()          { go test -count=1 -timeout 10m -v ./test/sanity && go test -count=1 -timeout 10m -v ./test/sanity -access block; }
stage_chaos()           { go test -count=1 -timeout 15m -v ./test/chaos/...; }
stage_e2e()             { hack/e2e.sh; }

stages=()
if [ $# -eq 0 ]; then
  stages=("${all[@]}")
else
  for stage in "$@"; do
    for needed in $(needs "$stage") "$stage"; do
      [[ " ${stages[*]-} " == *" $needed "* ]] || stages+=("$needed")
    done
  done
fi
run_stages "${stages[@]}"
