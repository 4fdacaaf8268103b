#!/usr/bin/env bash
# Generates the custom resource definitions. Usage: hack/generate-crds.sh CONTROLLER_GEN OUT
set -euo pipefail
"$1" crd paths=./api/v1/ output:crd:dir="$2/charts/azuredisk/files/crds"
