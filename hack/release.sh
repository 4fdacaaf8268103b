#!/usr/bin/env bash
# Makes what a release has. Usage: hack/release.sh STEP, with VERSION, REGISTRY, HOMEPAGE, and for the provenance REVISION, BUILDER and INVOCATION, in the environment. The Makefile calls it.
#   prepare  write VERSION into the chart and into CHANGELOG.md
#   check    fail if the commit cannot be released as VERSION, with every reason
#   make     fill out/release, from out/image and out/sbom, which `make image VERSION=…` makes, and out/plugin, which `make plugins VERSION=…` makes
#   publish  push out/image and out/chart to REGISTRY, sign them without a key, and create the release at GitHub
set -euo pipefail
cd "$(dirname "$0")/.."

VERSION=${VERSION-} REGISTRY=${REGISTRY-} HOMEPAGE=${HOMEPAGE-}
tag=v$VERSION
chart=charts/azuredisk
# The name that the chart of the repository gives the image.
unreleased=set-image-repository.invalid/azuredisk
out=out/release

fail() { echo "release: $*" >&2; exit 1; }

check_version() {
  [ -n "$VERSION" ] || fail "VERSION is not set; want a version, as in: make $1 VERSION=1.2.3"
  local number='(0|[1-9][0-9]*)'
  [[ $VERSION =~ ^$number\.$number\.$number(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$ ]] ||
    fail "VERSION is \"$VERSION\"; want MAJOR.MINOR.PATCH, with -rc.1 or the like behind it for a candidate, and without a v in front"
}

# notes prints the section of CHANGELOG.md with this heading, without the heading.
notes() {
  awk -v heading="## [$1]" '/^## / { inside = index($0, heading) == 1; next } /^\[[^]]*\]: / { next } inside' CHANGELOG.md |
    sed -e '/./,$!d' | sed -e ':again' -e '/^\n*$/{$d;N;bagain' -e '}'
}

chart_field() { sed -n "s/^$1: *//p" $chart/Chart.yaml; }

prepare() {
  check_version prepare-release
  ! git rev-parse -q --verify "refs/tags/$tag" >/dev/null || fail "the tag $tag exists already; choose a later version"
  grep -q "^## \[Unreleased\]" CHANGELOG.md || fail "CHANGELOG.md has no section [Unreleased]"
  ! grep -q "^## \[$VERSION\]" CHANGELOG.md || fail "CHANGELOG.md has a section [$VERSION] already"
  [ -n "$(notes Unreleased)" ] || fail "the section [Unreleased] of CHANGELOG.md is empty; write there what users get"
  sed -i -e "s/^version: .*/version: $VERSION/" -e "s/^appVersion: .*/appVersion: $VERSION/" $chart/Chart.yaml
  sed -i "s/^## \[Unreleased\].*/&\n\n## [$VERSION] - $(date -u +%F)/" CHANGELOG.md
  echo "release: $chart/Chart.yaml and CHANGELOG.md have version $VERSION. Run \`make update\`, read the difference, and commit it."
}

check() {
  check_version release
  local faults=() changed at
  if ! git rev-parse -q --verify HEAD >/dev/null 2>&1; then
    fail "this is no git repository with a commit; a release is made from a commit"
  fi
  changed=$(git status --porcelain)
  [ -z "$changed" ] || faults+=("the working tree is not clean; commit or remove:"$'\n'"$(head -n 10 <<<"$changed" | sed 's/^/      /')")
  if at=$(git rev-parse -q --verify "refs/tags/$tag^{commit}") && [ "$at" != "$(git rev-parse HEAD)" ]; then
    faults+=("the tag $tag exists and names commit ${at:0:12}, and this is $(git rev-parse --short=12 HEAD); a release does not change: choose a later version, or check out $tag")
  fi
  local field
  for field in version appVersion; do
    [ "$(chart_field $field)" = "$VERSION" ] ||
      faults+=("$chart/Chart.yaml: $field is $(chart_field $field), want $VERSION: run \`make prepare-release VERSION=$VERSION\` and \`make update\`, and commit")
  done
  [ -n "$(notes "$VERSION")" ] || faults+=("CHANGELOG.md has no text under \"## [$VERSION]\": \`make prepare-release VERSION=$VERSION\` makes it of the section [Unreleased]")
  [ ${#faults[@]} -gt 0 ] || return 0
  echo "release: version $VERSION cannot be made of this commit:" >&2
  printf '  - %s\n' "${faults[@]}" >&2
  return 1
}

# name_image gives the image its name in REGISTRY, in files of a copy of the chart or of the manifests.
name_image() {
  [ -n "$REGISTRY" ] || return 0
  sed -i -E "s#^( *(- )?(repository|image): \"?)$unreleased#\1$REGISTRY/azuredisk#" "$@"
  grep -q "$REGISTRY/azuredisk" "$@" || fail "no file names the image $unreleased, which should become $REGISTRY/azuredisk: $*"
}

# name_home gives the project the URL HOMEPAGE, in files of a copy of the chart or of the manifests.
name_home() {
  sed -i "s#$(chart_field home)#$home#g" "$@"
  grep -qF "$home" "$@" || fail "no file names the home page $(chart_field home), which should become $home: $*"
}

check_home() {
  [[ -z $HOMEPAGE || $HOMEPAGE =~ ^https://[A-Za-z0-9./_~-]*[A-Za-z0-9]$ ]] ||
    fail "HOMEPAGE is \"$HOMEPAGE\"; want the URL of the repository that you publish, without a slash at its end, as in: HOMEPAGE=https://example.com/azuredisk"
}

# pack FOLDER IN FILE: a tar with the time of the commit, so that a commit has one. A name that ends with gz is compressed.
pack() {
  local zip=cat
  [[ $3 != *gz ]] || zip="gzip -n -9"
  tar --sort=name --mtime="@$created" --owner=0 --group=0 --numeric-owner --mode='u=rwX,go=rX' -C "$2" -cf - "$1" | $zip >"$3"
}

# pack_plugins packs `kubectl azuredisk` for each platform, and writes the manifest by which krew installs it.
pack_plugins() {
  local folder platform file
  cat >$out/kubectl-azuredisk.krew.yaml <<EOF
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: azuredisk
spec:
  version: $tag
  homepage: $home
  shortDescription: Explain and list volumes of the Azure Disk CSI driver
  description: |
    Says in one sentence why a pod, a claim, a volume, a node or a snapshot is
    not ready, and what to do. Lists volumes with their nodes, and nodes with
    their free disk slots. Says where pods would run if a node or a zone were
    lost, and checks an installation, or a cluster before one. It reads with
    your own rights, and changes nothing.
  platforms:
EOF
  cp -r out/plugin "$work/plugin"
  for folder in "$work"/plugin/*; do
    platform=$(basename "$folder")
    [ -s "$folder/THIRD-PARTY-NOTICES" ] || fail "out/plugin/$platform has no THIRD-PARTY-NOTICES; \`make plugins\` makes them"
    cp LICENSE "$folder/"
    # By its name kubectl finds what completes the plug-in's arguments. Windows does not run a script without an extension.
    [[ $platform == windows-* ]] || cp cli/kubectl-azuredisk/kubectl_complete-azuredisk "$folder/"
    file=kubectl-azuredisk-$platform-$VERSION.tar.gz
    pack . "$folder" "$out/$file"
    cat >>$out/kubectl-azuredisk.krew.yaml <<EOF
    - selector:
        matchLabels:
          os: ${platform%-*}
          arch: ${platform#*-}
      uri: $home/releases/download/$tag/$file
      sha256: $(sha256sum "$out/$file" | cut -d' ' -f1)
      bin: $(cd "$folder" && ls kubectl-azuredisk*)
EOF
  done
}

make_release() {
  check_version release
  check_home
  home=${HOMEPAGE:-$(chart_field home)}
  [ -d out/image ] && [ -d out/sbom ] && [ -x bin/image ] || fail "out/image is missing; \`make release\` makes it"
  [ -d out/plugin ] && [ -d out/manifests ] || fail "out/plugin or out/manifests is missing; \`make release\` makes them"
  created=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
  rm -rf $out out/chart
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  mkdir -p $out
  cp -r $chart "$work/azuredisk"
  cp LICENSE "$work/azuredisk/"
  name_image "$work/azuredisk/values.yaml"
  name_home "$work/azuredisk/Chart.yaml"
  sed -i "s#](../../#]($home/blob/$tag/#g" "$work/azuredisk/README.md" # its pages are not in the package
  pack azuredisk "$work" "$out/azuredisk-$VERSION.tgz"
  bin/image chart --archive "$out/azuredisk-$VERSION.tgz" --out out/chart --home "$home" --revision "${REVISION-}" \
    --builder "${BUILDER-}" --invocation "${INVOCATION-}" \
    --parameters "target=release,VERSION=$VERSION,REGISTRY=$REGISTRY,HOMEPAGE=$home"
  cp -r out/manifests "$work/azuredisk-manifests-$VERSION"
  cp LICENSE "$work/azuredisk-manifests-$VERSION/"
  name_image $(grep -rl --include='*.yaml' "image: \"\\?$unreleased:" "$work/azuredisk-manifests-$VERSION")
  name_home $(grep -rlF "$(chart_field home)" "$work/azuredisk-manifests-$VERSION")
  pack "azuredisk-manifests-$VERSION" "$work" "$out/azuredisk-manifests-$VERSION.tar.gz"
  pack . out/image "$out/azuredisk-image-$VERSION.oci.tar"
  pack . out/chart "$out/azuredisk-chart-$VERSION.oci.tar"
  pack_plugins
  local file
  for file in $chart/values-*.yaml; do
    [ ! -e "$file" ] || cp "$file" "$out/azuredisk-$VERSION-$(basename "$file")"
  done
  for file in out/sbom/*.spdx.json; do
    cp "$file" "$out/$(basename "$file" .spdx.json)-$VERSION.spdx.json"
  done
  notes "$VERSION" >$out/release-notes.md
  (cd $out && sha256sum -- * >checksums.txt)
  ls -l $out | awk 'NR > 1 { printf "%12d  %s\n", $5, $9 }'
  [ -n "$REGISTRY" ] || echo "release: REGISTRY is not set. The chart and the manifests name the image $unreleased, which no registry has."
  [ -n "$HOMEPAGE" ] || echo "release: HOMEPAGE is not set. The image, the chart, the alerts and the plug-in name $home, which cannot resolve."
}

# push LAYOUT REPOSITORY: push a layout, and sign it and how it was built.
push() {
  local pushed ref
  pushed=$(bin/image push --layout "out/$1" --repository "$REGISTRY/$2")
  echo "$pushed"
  for ref in $(sed -n 's/^pushed //p' <<<"$pushed"); do
    cosign sign --yes "$ref"
    cosign attest --yes --type slsaprovenance1 --predicate "out/$1.provenance.json" "$ref"
  done
}

publish() {
  check_version publish
  [ -n "$REGISTRY" ] || fail "REGISTRY is not set; want the registry that the release was made for, as in: make publish VERSION=1.2.3 REGISTRY=registry.example.com"
  [ -e "$out/azuredisk-$VERSION.tgz" ] || fail "$out has no version $VERSION; \`make release VERSION=$VERSION REGISTRY=$REGISTRY\` makes it"
  # grep reads to the end, so that tar does not fail with a broken pipe.
  tar -xzOf "$out/azuredisk-$VERSION.tgz" azuredisk/values.yaml | grep -F "repository: $REGISTRY/azuredisk" >/dev/null ||
    fail "the release in $out was made for another registry; make it with REGISTRY=$REGISTRY"
  [ -n "$HOMEPAGE" ] || fail "HOMEPAGE is not set; want the URL of the repository that the release was made for, as in: make publish VERSION=1.2.3 HOMEPAGE=https://example.com/azuredisk"
  tar -xzOf "$out/azuredisk-$VERSION.tgz" azuredisk/Chart.yaml | grep -xF "home: $HOMEPAGE" >/dev/null ||
    fail "the release in $out was made for another home page; make it with HOMEPAGE=$HOMEPAGE"
  [ -s out/image.provenance.json ] && [ -s out/chart.provenance.json ] ||
    fail "out has no provenance of the image or of the chart; make the release from a commit, without other changes"
  local program
  for program in cosign gh; do
    command -v $program >/dev/null || fail "$program is not installed; nothing was pushed"
  done
  push image azuredisk
  push chart charts/azuredisk
  (cd $out && cosign sign-blob --yes --bundle checksums.txt.sigstore.json checksums.txt)
  local flags=()
  [[ $VERSION != *-* ]] || flags+=(--prerelease)
  gh release create "$tag" --verify-tag --title "$tag" --notes-file $out/release-notes.md "${flags[@]}" $out/*
}

case "${1-}" in
  prepare|check|publish) "$1" ;;
  make) make_release ;;
  *) fail "usage: hack/release.sh prepare|check|make|publish" ;;
esac
