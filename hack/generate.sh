#!/usr/bin/env bash
# Generates files: deepcopy functions, CRDs and reference documentation.
# Usage: hack/generate.sh [DIR]; with DIR it writes the files there instead of into the tree.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-.}
mkdir -p "$out/api/v1" "$out/charts/azuredisk/files" "$out/docs/reference"

controller_gen=$(hack/tool.sh controller-gen)
"$controller_gen" object paths=./api/v1/ output:object:dir="$out/api/v1"
hack/generate-crds.sh "$controller_gen" "$out"
"$(hack/tool.sh crd-ref-docs)" --source-path=api/v1 --config=hack/crd-ref-docs.yaml \
  --renderer=markdown --output-path="$out/docs/reference/custom-resources.md" >/dev/null
go run ./hack/reference "$out/docs/reference"
