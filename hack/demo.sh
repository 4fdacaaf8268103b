#!/usr/bin/env bash
# `make demo` starts a playground, or uses the running one, plays the scenario planned-move, and stops
# the playground. KEEP=1 leaves it running.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/stages.sh

require_linux_root
started=$SECONDS
step() { echo; echo "=== $* ($((SECONDS - started)) s)"; }

step "system packages"
hack/install-packages.sh
step "our programs"
make --no-print-directory build
step "pinned programs: Kubernetes, etcd, containerd, … (cached; the first time takes about a quarter of an hour)"
bin/playground programs ensure

was_up=no
if bin/playground status >/dev/null 2>&1; then was_up=yes; fi
cleanup() {
  if [ "$was_up" = no ] && [ -z "${KEEP:-}" ]; then
    step "cleaning up (KEEP=1 leaves the playground up)"
    bin/playground down
  else
    echo
    echo "The playground is up. Talk to it:"
    echo "  bin/playground status"
    echo "  bin/playground kubectl get pods -A"
    echo "  bin/playground kubectl get azv,azva,azdn -n azure-disk-csi"
    echo "  bin/playground down"
  fi
}
trap cleanup EXIT
trap 'exit 130' INT TERM

step "playground"
bin/playground up
step "scenario planned-move"
bin/playground run planned-move
step "done"
