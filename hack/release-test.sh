#!/usr/bin/env bash
# Tests hack/release.sh in a repository of its own: what it refuses, and what it makes. Usage: hack/release-test.sh
set -uo pipefail
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
(cd image && go build -o "$dir/image" ./cmd/image) || exit
repo=$dir/repo
mkdir -p "$repo/hack" "$repo/bin" "$repo/out/manifests/base"
cp hack/release.sh "$repo/hack/"
cp LICENSE "$repo/"
cp -r --parents charts/azuredisk cli/kubectl-azuredisk/kubectl_complete-azuredisk "$repo/"
cp "$dir/image" "$repo/bin/image"
printf 'image: set-image-repository.invalid/azuredisk:1.2.3\n' >"$repo/out/manifests/base/azuredisk.yaml"
mkdir "$repo/out/manifests/azure-monitor"
printf '{"runbook_url": "https://set-homepage.invalid/azuredisk/blob/main/docs/guides/alerts.md#a"}\n' >"$repo/out/manifests/azure-monitor/rules.json"
printf '/bin/\n/out/\n' >"$repo/.gitignore"
printf '# Changelog\n\n## [Unreleased]\n\n### Added\n\n* A thing.\n\n## [1.0.0] - 2026-01-01\n\n* An old thing.\n' >"$repo/CHANGELOG.md"
# In each test, an image that nothing reads.
mkdir -p "$repo/out/image" "$repo/out/sbom"
echo '{}' >"$repo/out/image/index.json"
echo '{}' >"$repo/out/sbom/azuredisk-linux-amd64.spdx.json"
for platform in linux-amd64 darwin-arm64 windows-amd64; do
  mkdir -p "$repo/out/plugin/$platform"
  program=$repo/out/plugin/$platform/kubectl-azuredisk
  [[ $platform != windows-* ]] || program+=.exe
  install -m 755 /dev/stdin "$program" <<<"$platform"
  echo notices >"$repo/out/plugin/$platform/THIRD-PARTY-NOTICES"
done
git() { command git -C "$repo" -c user.name=test -c user.email=test@example.com -c commit.gpgsign=false "$@"; }
git init -q && git add -A && git commit -qm first

failed=0
# expect STATUS TEXT STEP [VERSION [REGISTRY [HOMEPAGE]]]: the status of a step, and a text that it prints.
expect() {
  local status=0 said
  said=$(VERSION=${4-} REGISTRY=${5-} HOMEPAGE=${6-} "$repo/hack/release.sh" "$3" 2>&1) || status=$?
  if [ "$status" = "$1" ] && [[ $said == *"$2"* ]]; then
    echo "ok   release.sh $3 VERSION=${4-} REGISTRY=${5-} HOMEPAGE=${6-}"
    return
  fi
  echo "FAIL release.sh $3 VERSION=${4-} REGISTRY=${5-} HOMEPAGE=${6-}: got status $status and: $said"
  echo "     want status $1 and: $2"
  failed=1
}
# same WHAT GOT WANT
same() {
  [ "$2" = "$3" ] && { echo "ok   $1"; return; }
  echo "FAIL $1: got \"$2\", want \"$3\""
  failed=1
}

expect 1 "VERSION is not set" check
expect 1 "VERSION is not set" prepare
expect 1 "VERSION is not set" publish
expect 1 'VERSION is "v1.2.3"; want' check v1.2.3
expect 1 'VERSION is "1.2"; want' check 1.2
expect 1 'VERSION is "1.02.3"; want' check 1.02.3
expect 1 'VERSION is "1.2.3-"; want' check 1.2.3-
expect 1 'VERSION is "1.2.3; rm x"; want' prepare '1.2.3; rm x'
expect 1 "Chart.yaml: version is 0.1.0, want 1.2.3" check 1.2.3
expect 1 'no text under "## [1.2.3]"' check 1.2.3
expect 1 "has a section [1.0.0] already" prepare 1.0.0
expect 0 "have version 1.2.3" prepare 1.2.3
expect 1 "section [Unreleased] of CHANGELOG.md is empty" prepare 1.2.4
expect 1 "working tree is not clean" check 1.2.3
git commit -qam second
expect 0 "" check 1.2.3
git tag v1.2.3
expect 0 "" check 1.2.3
expect 1 "the tag v1.2.3 exists already" prepare 1.2.3
git commit -q --allow-empty -m third
expect 1 "the tag v1.2.3 exists and names commit" check 1.2.3
expect 1 "REGISTRY is not set" publish 1.2.3
expect 1 "has no version 1.2.3" publish 1.2.3 registry.example.com
mv "$repo/out/plugin" "$repo/out/plugins"
expect 1 "out/plugin or out/manifests is missing" make 1.2.3
mv "$repo/out/plugins" "$repo/out/plugin"
mv "$repo/out/plugin/linux-amd64/THIRD-PARTY-NOTICES" "$repo/out/notices"
expect 1 "out/plugin/linux-amd64 has no THIRD-PARTY-NOTICES" make 1.2.3
mv "$repo/out/notices" "$repo/out/plugin/linux-amd64/THIRD-PARTY-NOTICES"
expect 0 "REGISTRY is not set. The chart" make 1.2.3
same "without a home page, no URL of the release resolves" \
  "$(cd "$repo/out/release" && { tar -xzOf azuredisk-1.2.3.tgz; tar -xzOf azuredisk-manifests-1.2.3.tar.gz; cat kubectl-azuredisk.krew.yaml; } |
    grep -aoE 'https://[^/ ]*/[A-Za-z0-9./-]*azuredisk(/[a-z]*)?' | sort -u | grep -v '^https://set-homepage.invalid/azuredisk')" ""
expect 0 "HOMEPAGE is not set. The image" make 1.2.3
expect 1 'HOMEPAGE is "http://example.com/a"; want' make 1.2.3 "" http://example.com/a
expect 1 'HOMEPAGE is "https://example.com/a/"; want' make 1.2.3 "" https://example.com/a/
home=https://example.com/team/azuredisk
expect 0 "azuredisk-image-1.2.3.oci.tar" make 1.2.3 registry.example.com/team $home
expect 1 "made for another registry" publish 1.2.3 other.example.com
expect 1 "HOMEPAGE is not set" publish 1.2.3 registry.example.com/team
expect 1 "made for another home page" publish 1.2.3 registry.example.com/team https://example.com/other
made=$repo/out/release
before=$(cat "$made/checksums.txt")
expect 0 "checksums.txt" make 1.2.3 registry.example.com/team $home
expect 1 "has no provenance" publish 1.2.3 registry.example.com/team $home
echo '{}' >"$repo/out/image.provenance.json"
export REVISION=0123456789012345678901234567890123456789 BUILDER=https://example.com/builder
expect 0 "checksums.txt" make 1.2.3 registry.example.com/team $home
# Programs that print how they are called, in place of those that push and sign.
stubs=$dir/stubs
mkdir "$stubs"
printf '#!/bin/sh\necho cosign "$@"\n' >"$stubs/cosign"
printf '#!/bin/sh\necho gh "$@"\n' >"$stubs/gh"
printf '#!/bin/sh\necho "pushed $5@sha256:1"\n' >"$repo/bin/image"
chmod +x "$stubs"/* "$repo/bin/image"
for signed in image:azuredisk chart:charts/azuredisk; do
  ref=registry.example.com/team/${signed#*:}@sha256:1
  PATH=$stubs:$PATH expect 0 "cosign sign --yes $ref
cosign attest --yes --type slsaprovenance1 --predicate out/${signed%%:*}.provenance.json $ref" publish 1.2.3 registry.example.com/team $home
done
cp "$dir/image" "$repo/bin/image"
same "the provenance of the chart names the commit and the builder" \
  "$(grep -o '"gitCommit":"[0-9]*"\|"builder":{"id":"[^"]*"' "$repo/out/chart.provenance.json" | xargs)" \
  "gitCommit:$REVISION builder:{id:https://example.com/builder"
same "a commit has one release" "$(cat "$made/checksums.txt")" "$before"
same "the checksums fit" "$(cd "$made" && sha256sum --quiet --check checksums.txt && find . -type f ! -name checksums.txt | wc -l)" "$(wc -l <"$made/checksums.txt")"
same "the notes are the section of the version" "$(cat "$made/release-notes.md")" $'### Added\n\n* A thing.'
same "the chart names the image in the registry" "$(tar -xzOf "$made/azuredisk-1.2.3.tgz" azuredisk/values.yaml | grep -c '^  repository: registry.example.com/team/azuredisk$')" 1
same "the chart has the home page" "$(tar -xzOf "$made/azuredisk-1.2.3.tgz" azuredisk/Chart.yaml | grep -cx "home: $home")" 1
same "the links of the chart's page lead to the repository" \
  "$(tar -xzOf "$made/azuredisk-1.2.3.tgz" azuredisk/README.md | grep -o '](.*)' | grep -cv "^]($home/blob/v1.2.3/[A-Za-z]")" 0
same "the manifests have the home page" \
  "$(tar -xzOf "$made/azuredisk-manifests-1.2.3.tar.gz" azuredisk-manifests-1.2.3/azure-monitor/rules.json)" \
  "{\"runbook_url\": \"$home/blob/main/docs/guides/alerts.md#a\"}"
same "krew has the home page" "$(grep -c "^  homepage: $home$\|^      uri: $home/releases/download/v1.2.3/" "$made/kubectl-azuredisk.krew.yaml")" 4
same "no file of a release names what cannot resolve" \
  "$(for file in "$made"/*.tgz "$made"/*.tar.gz; do tar -xzOf "$file"; done | cat - "$made"/*.yaml | grep -c 'https://[a-z-]*\.invalid')" 0
same "each archive has the licence" "$(for file in "$made"/azuredisk-1.2.3.tgz "$made"/*.tar.gz; do
  tar -tzf "$file" | grep -c '/LICENSE$'; done | uniq -c | xargs)" "5 1"
same "the chart has the version" "$(tar -xzOf "$made/azuredisk-1.2.3.tgz" azuredisk/Chart.yaml | grep -c '[vV]ersion: 1.2.3$')" 2
same "the manifests name the image in the registry" \
  "$(tar -xzOf "$made/azuredisk-manifests-1.2.3.tar.gz" azuredisk-manifests-1.2.3/base/azuredisk.yaml)" "image: registry.example.com/team/azuredisk:1.2.3"
same "the artifact of the chart has its version as the tag" "$(grep -c '"org.opencontainers.image.ref.name": *"1.2.3"' "$repo/out/chart/index.json")" 1
krew=$made/kubectl-azuredisk.krew.yaml
same "the manifest for krew has the version" "$(grep -c '^  version: v1.2.3$' "$krew")" 1
same "krew verifies what the release has" "$(cd "$made" && sed -n -e 's|^      uri: .*/download/v1.2.3/||p' -e 's|^      sha256: ||p' "$krew" |
  paste - - | awk '{ print $2 "  " $1 }' | sha256sum --check 2>&1 | grep -c ': OK$')" 3
same "the programs and what krew calls them" "$(sed -n 's/^      bin: //p' "$krew" | paste -sd' ')" "kubectl-azuredisk kubectl-azuredisk kubectl-azuredisk.exe"
same "a package has the program for its platform, and the licences" \
  "$(tar -xzOf "$made/kubectl-azuredisk-windows-amd64-1.2.3.tar.gz" ./kubectl-azuredisk.exe; tar -tzf "$made/kubectl-azuredisk-windows-amd64-1.2.3.tar.gz" | sort | paste -sd' ')" \
  $'windows-amd64\n./ ./LICENSE ./THIRD-PARTY-NOTICES ./kubectl-azuredisk.exe'
same "a package has the program that completes arguments, but not for Windows" \
  "$(for file in "$made"/kubectl-azuredisk-*.tar.gz; do tar -tvzf "$file" | sed -n 's|^\(-rwxr-xr-x\) .*/\(kubectl_complete-azuredisk\)$|\1 \2|p'; done | uniq -c | xargs)" \
  "2 -rwxr-xr-x kubectl_complete-azuredisk"
same "the program can be run" "$(tar -tvzf "$made/kubectl-azuredisk-linux-amd64-1.2.3.tar.gz" ./kubectl-azuredisk | cut -c1-10)" "-rwxr-xr-x"
same "the platforms of the manifest for krew" \
  "$(sed -n -e 's/^          os: //p' -e 's/^          arch: //p' "$krew" | paste -d/ - - | paste -sd' ')" "darwin/arm64 linux/amd64 windows/amd64"
rm -rf "$repo/.git"
expect 1 "no git repository" check 1.2.3
exit $failed
