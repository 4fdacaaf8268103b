#!/usr/bin/env bash
# Installs the system packages that building, testing and the playground need, and those of the arguments. It
# installs only what is missing, prints what it installs, and can be run again at any time.
# Usage: hack/install-packages.sh [PACKAGE:PROGRAM ...]
set -euo pipefail

# A package, and a program or file that shows that it is installed.
wanted=(
  "runc:runc" "nftables:nft" "iptables:iptables" "conntrack:conntrack" "iproute2:ip"
  "e2fsprogs:mkfs.ext4" "xfsprogs:mkfs.xfs" "util-linux:nsenter" "mount:mount" "kmod:modprobe"
  "fuse3:fusermount3" "make:make" "git:git" "gcc:gcc" "libc6-dev:/usr/include/stdio.h"
  "ca-certificates:/etc/ssl/certs/ca-certificates.crt" "procps:ps" "$@"
)

have() {
  case "$1" in
    /*) [ -e "$1" ] ;;
    *) PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null ;;
  esac
}

# A browser, for the tests of pages.
have chromium || have google-chrome || wanted+=("chromium:chromium")

missing=()
for entry in "${wanted[@]}"; do
  have "${entry#*:}" || missing+=("${entry%%:*}")
done

if [ ${#missing[@]} -eq 0 ]; then
  echo "system packages: all are there"
  exit 0
fi
if [ "$(uname -s)" != Linux ]; then
  echo "This is $(uname -s): the playground and the tests with real disks need Linux." >&2
  exit 1
fi
if ! command -v apt-get >/dev/null; then
  echo "This is neither Debian nor Ubuntu. Please install, by this system's own means, what these packages hold:" >&2
  echo "  ${missing[*]}" >&2
  exit 1
fi
if [ "$(id -u)" != 0 ]; then
  echo "Packages are missing and only root can install them. Please run:" >&2
  echo "  sudo apt-get install ${missing[*]}" >&2
  exit 1
fi

echo "system packages: installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
# If another apt is running, wait for it instead of failing.
apt() { apt-get -o DPkg::Lock::Timeout=600 -q "$@" >>"$log" 2>&1; }
if ! { apt install -y --no-install-recommends "${missing[@]}" || { apt update && apt install -y --no-install-recommends "${missing[@]}"; }; }; then
  tail -n 30 "$log" >&2
  echo "The packages could not be installed: ${missing[*]}" >&2
  exit 1
fi
for entry in "${wanted[@]}"; do
  have "${entry#*:}" || { echo "${entry#*:} is still missing after installing ${entry%%:*}" >&2; exit 1; }
done
echo "system packages: installed ${missing[*]}"
