#!/usr/bin/env bash
# Fails when a generated file in the tree is not what its source says.
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
unformatted=$(gofmt -l $(git ls-files '*.go'))
if [ -n "$unformatted" ]; then
  echo "verify: not formatted; run 'make fmt':" $unformatted >&2
  status=1
fi
exit $status
