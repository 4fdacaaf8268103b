#!/usr/bin/env bash
# The end-to-end stage of the tests, on real clusters on this machine: the playground itself, from inside and
# outside; then the chart installed with VolumeAttachments, the life cycle of Kubernetes' volumes tested sentence by sentence, the chart upgraded, a pod
# moved, and the chart removed; the chart installed as it comes, and a node lost under a pod that writes; and the guide from
# the V1 driver and back followed word by word. `playground down` fails if anything is left behind.
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

# uninstall removes the chart, and fails if anything of it is left.
uninstall() {
  # The scenarios have deleted their claims; the chart's guard refuses as long as their disks are being detached and deleted.
  bin/playground kubectl wait -n azure-disk-csi --for=delete azv --all --timeout=5m
  bin/playground kubectl wait -n azure-disk-csi --for=delete azva --all --timeout=1m
  bin/playground driver uninstall
  local left
  left=$(bin/playground kubectl get -n azure-disk-csi deployments,daemonsets,services,azv,azva -o name)
  left+=$(bin/playground kubectl get csidrivers,clusterroles,clusterrolebindings,validatingadmissionpolicies -o name | grep -i -e azuredisk -e disk.csi.azure.com || true)
  if [ -n "$left" ]; then
    echo "left behind by the uninstall: $left" >&2
    exit 1
  fi
}

echo "--- the playground without the driver"
bin/playground selftest

echo "--- the life cycle of volumes"
cat >"$state/with.yaml" <<'VALUES'
csiDriver: {attachRequired: true}
VALUES
bin/playground up --values "$state/with.yaml"
bin/playground lifecycle --out out/e2e

echo "--- upgrade"
cat >"$state/upgrade.yaml" <<'VALUES'
logLevel: debug
VALUES
bin/playground driver install --values "$state/upgrade.yaml"

echo "--- a move with VolumeAttachments"
bin/playground run hello --out out/e2e

echo "--- uninstall"
uninstall

echo "--- node loss"
bin/playground driver install
bin/playground run node-power-cut --out out/e2e
uninstall

echo "--- from V1 and back"
bin/playground migration --out out/e2e
