package filesystem

import (
	"errors"
	"testing"

	"github.com/azuredisk-csi/azuredisk/internal/node/nodereport"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func TestWhichMountAtAStagingPathIsKept(t *testing.T) {
	record := func(change func(*nodereport.Record)) *nodereport.Record {
		r := &nodereport.Record{VolumeName: "v", Epoch: 3, Device: "/dev/sdc", LUN: 1}
		if change != nil {
			change(r)
		}
		return r
	}
	of := func(source string, sealed bool) provisioner.MountPoint {
		return provisioner.MountPoint{Source: source, Target: "/staging", Sealed: sealed}
	}
	dead := provisioner.Errorf(provisioner.NotFound, "gone")
	for name, test := range map[string]struct {
		in   stagingMount
		keep bool
		err  error
	}{
		"the device, in order": {stagingMount{mount: of("/dev/sdc", false), before: record(nil)}, true, nil},
		"the device, and this node has acquired ownership again": {
			stagingMount{mount: of("/dev/sdc", false), before: record(func(r *nodereport.Record) { r.Epoch = 2 })}, true, nil},
		"the device, of an epoch before another node's, with a record of another device": {
			stagingMount{mount: of("/dev/sdc", false),
				before: record(func(r *nodereport.Record) { r.Epoch, r.Device = 1, "/dev/sdb" })}, true, nil},
		"the device, mounted under a record without an epoch": {
			stagingMount{mount: of("/dev/sdc", false), before: record(func(r *nodereport.Record) { r.Epoch = 0 })}, true, nil},
		"a device that answers and is the volume's as on record": {
			stagingMount{mount: of("/dev/sdb", false), before: record(func(r *nodereport.Record) { r.Device = "/dev/sdb" })},
			false,
			provisioner.FailedPrecondition},
		"the device, mounted by V1": {stagingMount{mount: of("/dev/sdc", false)}, true, nil},
		"the device, of an epoch before another node's": {
			stagingMount{mount: of("/dev/sdc", false), before: record(func(r *nodereport.Record) { r.Epoch = 1 })}, false, nil},
		"the device, of an epoch before another node's, with a pod": {
			stagingMount{mount: of("/dev/sdc", false), before: record(func(r *nodereport.Record) { r.Epoch = 1 }),
				elsewhere: "/pod"}, false, provisioner.Unavailable},
		"the device, which does not answer": {stagingMount{mount: of("/dev/sdc", false), before: record(nil), fault: dead}, false,
			provisioner.Unavailable},
		"the device, whose filesystem has shut down": {stagingMount{mount: of("/dev/sdc", true), before: record(nil)}, false,
			nil},
		"the device, whose filesystem has shut down, with a pod": {
			stagingMount{mount: of("/dev/sdc", true), before: record(nil), elsewhere: "/pod"}, false, provisioner.Unavailable},
		"the device, published for reading": {
			stagingMount{record: *record(func(r *nodereport.Record) { r.ReadOnly = true }), mount: of("/dev/sdc", true)}, true,
			nil},
		"the device, published for reading before, and with writing": {
			stagingMount{mount: of("/dev/sdc", true), before: record(func(r *nodereport.Record) { r.ReadOnly = true })}, false,
			nil},
		"the device, published with writing before, and for reading": {
			stagingMount{record: *record(func(r *nodereport.Record) { r.ReadOnly = true }), mount: of("/dev/sdc", false),
				before: record(nil)}, false, nil},
		"a device that is gone": {stagingMount{mount: of("/dev/sdb", false), fault: dead}, false, nil},
		"a device that is gone, with a pod": {stagingMount{mount: of("/dev/sdb", true), fault: dead, elsewhere: "/pod"}, false,
			nil},
		"a device that answers and was the volume's": {
			stagingMount{mount: of("/dev/sdb", false),
				before: record(func(r *nodereport.Record) { r.Epoch, r.Device = 1, "/dev/sdb" })}, false, nil},
		"a device that answers and was found under another LUN": {
			stagingMount{mount: of("/dev/sdb", false),
				before: record(func(r *nodereport.Record) { r.Device, r.LUN = "/dev/sdb", 7 })}, false, nil},
		"a device that answers and is unknown": {stagingMount{mount: of("/dev/sdb", false), before: record(nil)}, false,
			provisioner.FailedPrecondition},
	} {
		t.Run(name, func(t *testing.T) {
			if test.in.record.VolumeName == "" {
				test.in.record = *record(nil)
			}
			keep, err := test.in.keep()
			if keep != test.keep || !errors.Is(err, test.err) {
				t.Errorf("keep = %t, %v, want %t, %v", keep, err, test.keep, test.err)
			}
		})
	}
}
