#!/usr/bin/env bash
# Runs the end-to-end tests on real clusters on this machine. Each test is a stage. It ends with `playground down`, which fails
# if anything is left.
# Usage: [PLAYGROUND_KUBERNETES=1.34] hack/e2e.sh [STAGE ...]; without arguments all but guides, without the variable the newest Kubernetes. The output of a stage is in out/test/e2e/STAGE.log.
#   selftest   the playground itself, from inside and outside
#   volumes    the chart installed with VolumeAttachments, the life cycle of Kubernetes' volumes tested sentence by sentence, the chart upgraded, a pod
#              moved, a filesystem repaired by the commands of its guide, and the chart removed
#   v1         the commands of the guide from the V1 driver and back, and the chart removed; installed with defaults, and a node lost under a pod
#              that writes
#   guides     the commands of the guides to AKS, to an upgrade, to uninstalling and to a trial, in the profile of AKS, and to self-managed clusters;
#              and what AKS Automatic refuses
set -euo pipefail
cd "$(dirname "$0")/.."
self=hack/e2e.sh
. hack/stages.sh
log_dir=out/test/e2e

# The selftest checks what is left on the machine, so no other cluster may run with it. The others mostly wait, so they run in parallel.
all=(selftest volumes lane 0 selftest v1)

# Each runs in its own process, which ends at the first error: bash does not do that for functions that run_stages calls.
stage_selftest() { "$BASH" "$self" --play selftest; }
stage_volumes()  { "$BASH" "$self" --play volumes; }
stage_v1()       { "$BASH" "$self" --play v1; }
stage_guides()   { "$BASH" "$self" --play guides; }

selftest() {
  bin/playground selftest
}

volumes() {
  echo "--- the life cycle of volumes"
  echo 'csiDriver: {attachRequired: true}' >"$state/values.yaml"
  bin/playground up --values "$state/values.yaml"
  bin/playground lifecycle --out out/e2e
  echo "--- upgrade"
  echo 'logLevel: debug' >"$state/values.yaml"
  bin/playground driver install --values "$state/values.yaml"
  echo "--- a move with VolumeAttachments"
  bin/playground run hello --out out/e2e
  bin/playground guide repair-a-filesystem --out out/e2e
  uninstall
}

v1() {
  bin/playground up
  echo "--- from V1 and back"
  bin/playground migration --out out/e2e
  uninstall
  echo "--- node loss"
  bin/playground driver install
  bin/playground run node-power-cut --out out/e2e
  uninstall
}

guides() {
  bin/playground up --profile aks-enforce
  uninstall # the guides install it
  local guide
  for guide in install-on-aks upgrade uninstall trial-on-aks; do bin/playground guide $guide --out out/e2e; done
  bin/playground down
  bin/playground up
  uninstall
  bin/playground guide install-self-managed --out out/e2e
  uninstall
  bin/playground down
  automatic
}

# automatic wants AKS Automatic to refuse the driver, and the driver's own commands to name the cause: first the policies, and then, if the
# namespaces are excluded from them, the deny assignment.
automatic() {
  bin/playground up --profile aks-automatic
  bin/playground kubectl wait -n azure-disk-csi --for=jsonpath='{.status.desiredNumberScheduled}'=4 daemonset azuredisk-node --timeout=1m
  says "Host network namespaces are disallowed" doctor
  says "safeguards-baseline is enforced" preflight
  bin/playground az "$state" aks safeguards update --excluded-ns azure-disk-csi default
  bin/playground kubectl -n azure-disk-csi rollout restart deployment/azuredisk-controller daemonset/azuredisk-node # without the back-off after the refusals
  bin/playground kubectl -n azure-disk-csi rollout status deployment azuredisk-controller --timeout=3m
  bin/playground kubectl -n azure-disk-csi rollout status daemonset azuredisk-node --timeout=3m
  bin/playground kubectl apply -f examples/statefulset.yaml
  says "node resource group lockdown" doctor
  says "node resource group lockdown" why pod ledger-0
}

# says waits until a command of kubectl azuredisk prints a text. Its exit code is that of what it found.
says() {
  local text=$1 out
  shift
  for _ in $(seq 60); do
    out=$(KUBECONFIG="$PLAYGROUND_STATE/kubeconfig" bin/kubectl-azuredisk "$@" 2>&1) || true
    if grep -q -F "$text" <<<"$out"; then return; fi
    sleep 1
  done
  echo "kubectl azuredisk $* does not say \"$text\": $out" >&2
  exit 1
}

# uninstall removes the chart, and fails if anything of it is left.
uninstall() {
  echo "--- uninstall"
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

# play runs one of the above in its own state folder, and stops the playground there.
play() {
  state=$(mktemp -d)
  export PLAYGROUND_STATE="$state/playground"
  trap 'status=$?; bin/playground down || status=1; rm -rf "$state"; exit $status' EXIT
  trap 'exit 130' INT TERM
  "$1"
}

case "${1-}" in
  --lane) run_lane "${@:2}" ;;
  --play) play "$2" ;;
  "") run_stages "${all[@]}" ;;
  *) run_stages "$@" ;;
esac
