#!/usr/bin/env bash
# Runs tests of the host library and of the node plug-in in a virtual machine with Debian's kernel and real SCSI disks, NVMe namespaces and SCSI targets.
# The node plug-in needs Kubernetes' programs, which `make programs` builds.
# Usage: hack/vm-test.sh [REGEXP]; with REGEXP only the tests whose names match run, and the result counts as a failure.
set -euo pipefail
cd "$(dirname "$0")/.."

hack/install-packages.sh qemu-system-x86:qemu-system-x86_64
cache=${AZUREDISK_CACHE:-$HOME/.cache/azuredisk}
out=out/vm-test
rm -rf "$out" && mkdir -p "$out/share/suites"
export CGO_ENABLED=0

echo "vm-test: building the tests"
go build -o "$out/init" ./test/vm/init
go build -o "$out/share/azuredisk" ./cmd/azuredisk
go test -c -vet=off -tags vm -o "$out/share/suites/devices" ./test/vm
go test -c -vet=off -tags vm -o "$out/share/suites/nodeplugin" ./test/nodeplugin
(cd image && go build -o "../$out/testvm" ./cmd/testvm)
"$out/testvm" --cache "$cache" --out "$out" --program "init=$out/init"

# /dev/kvm alone does not say that machines run on it: there are virtual machines that have it, and a processor without virtualization.
accelerator="tcg,thread=multi"
if [ -w /dev/kvm ] && grep -q -w -E 'vmx|svm' /proc/cpuinfo; then
  accelerator=kvm
fi
echo "vm-test: starting the virtual machine ($accelerator)"

# The tests plug in disks themselves: a port of the machine is connected to QEMU's monitor. The kernel finds the SCSI controllers in the order in which init
# loads their modules: hosts 0 to 3, where Azure has its boot disks, and host 4 for data disks. Without the settings
# of RCU, a scan of that one takes half a minute: it has 256 targets.
socket=$(mktemp -u)
disks=()
for i in {0..23}; do
  truncate -s 1M "$out/disk$i"
  disks+=(-blockdev "driver=file,node-name=disk$i,filename=$out/disk$i,cache.no-flush=on")
done
trap 'rm -f "$socket"' EXIT
set +e
timeout --foreground 1000 qemu-system-x86_64 -accel "$accelerator" -cpu max -M pc -smp 2 -m 3G -nodefaults -display none -no-reboot -nic none \
  -kernel "$out/kernel" -initrd "$out/root.cpio" -append "console=ttyS0 loglevel=1 panic=-1 nvme_core.multipath=Y rcutree.jiffies_till_first_fqs=0 rcutree.jiffies_till_next_fqs=0 RUN=${1-}" \
  -chardev stdio,id=console,signal=off -serial chardev:console -device isa-debug-exit,iobase=0x501,iosize=1 \
  -chardev "socket,id=monitor,path=$socket,server=on,wait=off" -mon chardev=monitor,mode=control \
  -device virtio-serial-pci -chardev "socket,id=port,path=$socket" -device virtserialport,chardev=port,name=qmp \
  -device pvscsi,id=scsi0 -device pvscsi -device pvscsi -device pvscsi -device virtio-scsi-pci,id=scsi4 \
  -virtfs "local,path=$out/share,mount_tag=share,security_model=none,readonly=on" \
  -virtfs "local,path=$cache/programs,mount_tag=programs,security_model=none,readonly=on" \
  "${disks[@]}" 2>&1 </dev/null | tee "$out/console.log"
code=${PIPESTATUS[0]}
set -e
# What the machine tells QEMU when every test has passed: see test/vm/init.
if [ "$code" != 33 ]; then
  echo "vm-test: FAILED (QEMU ended with $code); the console is in $out/console.log" >&2
  exit 1
fi
