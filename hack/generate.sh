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
  --renderer=markdown --templates-dir=hack/crd-ref-docs \
  --output-path="$out/docs/reference/custom-resources.md" >/dev/null
# The line breaks of comments, and the blank lines that the templates leave.
sed -i 's|<br />| |g; s/  *|$/ |/' "$out/docs/reference/custom-resources.md"
cat -s "$out/docs/reference/custom-resources.md" > "$out/docs/reference/.custom-resources.md"
mv "$out/docs/reference/.custom-resources.md" "$out/docs/reference/custom-resources.md"
go run ./hack/reference "$out/docs/reference"
