#!/usr/bin/env bash
# Prints the path of a pinned tool and builds it first if it is missing.
# Usage: hack/tool.sh NAME. tools/*/go.mod has the tools and their versions. The
# programs are cached outside of the tree, under a hash of those files.
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1:?usage: hack/tool.sh controller-gen|crd-ref-docs|golangci-lint|govulncheck|promtool}" in
  controller-gen) module=tools package=sigs.k8s.io/controller-tools/cmd/controller-gen ;;
  crd-ref-docs)   module=tools package=github.com/elastic/crd-ref-docs ;;
  # golangci-lint with the linter of Kubernetes APIs in it.
  golangci-lint)  module=tools/lint package=sigs.k8s.io/kube-api-linter/cmd/golangci-lint-kube-api-linter ;;
  govulncheck)    module=tools/vuln package=golang.org/x/vuln/cmd/govulncheck ;;
  promtool)       module=tools/prometheus package=github.com/prometheus/prometheus/cmd/promtool ;;
  *) echo "hack/tool.sh: no such tool: $1" >&2; exit 2 ;;
esac

hash=$(cat "$module/go.mod" "$module/go.sum" <(go env GOVERSION) | sha256sum | cut -c1-12)
dir="${AZUREDISK_CACHE:-$HOME/.cache/azuredisk}/tools/$1-$hash"
if [ ! -x "$dir/$1" ]; then
  echo "building $1 (once; kept in $dir)" >&2
  mkdir -p "$dir"
  # One build at a time: another script may need the same tool now.
  exec 9>"$dir/.lock"
  flock 9
fi
if [ ! -x "$dir/$1" ]; then
  compile=$PWD/hack/compile.sh
  (cd "$module" && GOFLAGS="${GOFLAGS-} -mod=readonly" CGO_ENABLED=0 "$compile" go build -trimpath -ldflags '-s -w' -o "$dir/.$1" "$package") 9>&-
  mv "$dir/.$1" "$dir/$1"
fi
echo "$dir/$1"
