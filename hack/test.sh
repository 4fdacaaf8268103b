#!/usr/bin/env bash
# Runs the project's tests, stage by stage. Without arguments it runs all stages, as CI does.
# Usage: hack/test.sh [STAGE ...]; a named stage does the set-up that it needs first.
# The output of a stage is in out/test/STAGE.log. If a stage fails, its end is printed.
set -uo pipefail
cd "$(dirname "$0")/.."
self=hack/test.sh
. hack/stages.sh

# Real clusters and devices mostly wait. Stages that only compute run beside them at the lowest priority: the race detector compiles everything again before
# the unit tests. The simulation has both processors to itself, because it has to end in five minutes. csi-sanity and the faults end before a cluster is
# measured. Until then they have priority, because their controllers have leases of a few seconds.
all=(packages build programs simulation e2e unit
  lane -10 simulation sanity chaos
  lane 19 programs race verify lint docs playground-unit image-unit cli-unit)

needs() {
  case "$1" in
    unit|race|sanity|chaos|e2e|verify|cli-unit) echo "packages build programs" ;;
    programs) echo "packages build" ;;
    docs) echo "packages" ;;
    *) echo "" ;;
  esac
}

# No other process may see the mounts of a test. The processes of a playground copy the mounts that exist when they start, unless those are shared, and
# would keep a test's disk busy. The playground's selftest counts mounts that it has not seen before as its own.
with_own_mounts()       { unshare --mount --propagation slave "$@"; }

stage_packages()        { hack/install-packages.sh; }
stage_build()           { hack/compile.sh make --no-print-directory build; }
stage_programs()        { hack/compile.sh bin/playground programs ensure; }
stage_race()            { CGO_ENABLED=1 hack/compile.sh go build -race $(go list -f '{{if .GoFiles}}{{.ImportPath}}{{end}}' $(concurrent)); }
stage_verify()          { hack/verify.sh && hack/stages-test.sh && hack/release-test.sh; }
# The linters vet everything, so the tests need not.
stage_lint()            { make --no-print-directory lint; }
# The race detector is for packages whose code or tests start goroutines or use package sync. The others share the compiled packages of the build. A chart
# has no races, although its tests start programs. Nor has cmd: it only wires packages, which are tested under the detector, also together
# (test/controllerplugin), and its imports alone are a tenth of what would be compiled for the detector.
unit_packages()         { go list "$@" ./... | grep -v -e /test/sanity -e /test/chaos -e /test/bench -e /test/simulation -e /test/site; }
concurrent() {
  unit_packages -f '{{.Dir}} {{.ImportPath}}' | while read -r dir package; do
    if [[ $package != */test/chart && $package != */cmd/* ]] && grep -qE '^\s*go [a-zA-Z]|\.Go\(|^\s*"sync(/atomic)?"$' "$dir"/*.go; then echo "$package"; fi
  done
}
# Tests of files that were built separately (our programs, the chart) run every time, in a random order. The other tests depend only on the code and the
# pinned programs, so Go may cache their results.
stage_unit() {
  # Compiling it here as well would take twice as long.
  await_stage race || return 1
  local raced built flags=(-vet=off -timeout 20m -p 3)
  raced=$(concurrent)
  built=$(unit_packages -f '{{.ImportPath}} {{join .TestImports " "}} {{join .XTestImports " "}}' | grep -E 'testkit/tree|/test/stack' | cut -d" " -f1)
  AZUREDISK_PROGRAMS=$(bin/playground programs list | sha256sum)
  export AZUREDISK_PROGRAMS
  with_own_mounts go test "${flags[@]}" -count=1 -shuffle=on $(grep -v -x -F "$raced" <<<"$built") &&
    with_own_mounts go test "${flags[@]}" $(unit_packages | grep -v -x -F -e "$raced" -e "$built") &&
    with_own_mounts env CGO_ENABLED=1 go test -race "${flags[@]}" -count=1 -shuffle=on $(grep -x -F "$raced" <<<"$built") &&
    with_own_mounts env CGO_ENABLED=1 go test -race "${flags[@]}" $(grep -v -x -F "$built" <<<"$raced")
}
stage_docs()            { make --no-print-directory docs-test; }
stage_playground-unit() { (cd playground && go test -vet=off -shuffle=on -timeout 10m ./...); }
# It downloads the image's packages and runs the tools that are in them.
stage_image-unit()      { (cd image && go test -vet=off -shuffle=on -timeout 10m ./...); }
stage_cli-unit()        { (cd cli/kubectl-azuredisk && go test -vet=off -shuffle=on -timeout 10m ./...); }
# The simulation is the same for the same code, so Go may cache its result, also for another clone.
stage_simulation()      { GODEBUG=adaptivestackstart=1 go test -vet=off -timeout 15m -v ./test/simulation; }
stage_sanity()          { with_own_mounts go test -vet=off -count=1 -timeout 10m -v ./test/sanity && with_own_mounts go test -vet=off -count=1 -timeout 10m -v ./test/sanity -access block; }
stage_chaos()           { with_own_mounts go test -vet=off -count=1 -timeout 15m -v ./test/chaos/...; }
stage_e2e()             { hack/e2e.sh; }

if [ "${1-}" = --lane ]; then
  run_lane "${@:2}"
  exit
fi
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
