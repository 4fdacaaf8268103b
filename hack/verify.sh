#!/usr/bin/env bash
# Fails if a generated file in the tree differs from what is generated now.
set -euo pipefail
cd "$(dirname "$0")/.."
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
hack/generate.sh "$made"
status=0
while IFS= read -r file; do
  if ! diff -u "$file" "$made/$file"; then
    echo "verify: $file is not what its source says; run 'make generate'" >&2
    status=1
  fi
done < <(cd "$made" && find . -type f | sed 's|^\./||' | sort)
# Kubernetes' client is half of the code of most programs. With the same versions of its modules everywhere, it is compiled once for all of them.
client_of() { (cd "$1" && go list -mod=readonly -deps -f '{{with .Module}}{{.Path}} {{.Version}}{{end}}' k8s.io/client-go/kubernetes | sort -u); }
for module in cli/kubectl-azuredisk playground playground/programs/{kubernetes,helm,coredns}; do
  if ! diff -u --label go.mod --label "$module/go.mod" <(client_of .) <(client_of "$module"); then
    echo "verify: $module/go.mod has other versions of what k8s.io/client-go is compiled from than go.mod; give both the newer ones with 'go get'" >&2
    status=1
  fi
done
# So is what the tool that makes the image has in common with the driver.
modules_of() { (cd "$1" && go list -mod=readonly -deps -f '{{with .Module}}{{.Path}} {{.Version}}{{end}}' "$2" | LC_ALL=C sort -u); }
other=$(LC_ALL=C join <(modules_of . ./cmd/azuredisk) <(modules_of image ./cmd/image) | awk '$2 != $3 { print "  " $1 ": " $2 " in go.mod, " $3 " in image/go.mod" }')
if [ -n "$other" ]; then
  printf '%s\n%s\n' "verify: the driver and image/cmd/image are compiled from different versions; give both the newer ones with 'go get':" "$other" >&2
  status=1
fi
unformatted=$(gofmt -l $(git ls-files '*.go'))
if [ -n "$unformatted" ]; then
  echo "verify: not formatted; run 'make fmt':" $unformatted >&2
  status=1
fi
exit $status
