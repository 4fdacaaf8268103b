package simulation

import (
	"testing"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// A volume is a register: what was acknowledged is read, and nothing comes after a proof.
func TestDataIsKept(t *testing.T) {
	volume := volumeOf("disk")
	for name, test := range map[string]struct {
		play func(d *data, dev *device)
		kept bool
	}{
		"a write that was acknowledged is read": {func(d *data, dev *device) {
			d.reach(dev, 1, true)
			d.read(dev)
		}, true},
		"a write that was acknowledged is lost": {func(d *data, dev *device) {
			d.reach(dev, 1, true)
			d.on[volume] = 0
			d.read(dev)
		}, false},
		"a write that was not acknowledged reaches the disk": {func(d *data, dev *device) {
			d.reach(dev, 1, false)
			d.read(dev)
		}, true},
		"a write that was not acknowledged is lost": {func(d *data, dev *device) {
			d.reach(dev, 1, false)
			d.on[volume] = 0
			d.read(dev)
		}, true},
		"a write of a fenced machine reaches the disk before the proof": {func(d *data, dev *device) {
			d.reach(dev, 1, false)
			d.end(volume, "node", apiv1.ProofDetached)
			d.read(dev)
		}, true},
		"a write of a fenced machine reaches the disk after the next one's": {func(d *data, dev *device) {
			d.reach(dev, 1, false)
			d.end(volume, "node", apiv1.ProofDetached)
			d.reach(&device{disk: dev.disk}, 2, true)
			d.on[volume] = 1
			d.read(dev)
		}, false},
		"a machine that says that it has unstaged has written all": {func(d *data, dev *device) {
			d.reach(dev, 1, false)
			d.on[volume] = 0
			d.end(volume, "node", apiv1.ProofUnstaged)
			d.read(dev)
		}, false},
		"a machine that lost its disk has unstaged": {func(d *data, dev *device) {
			d.reach(dev, 1, false)
			d.on[volume] = 0
			dev.lose()
			d.end(volume, "node", apiv1.ProofUnstaged)
			d.read(dev)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			d := newData(1)
			test.play(d, &device{disk: "disk"})
			if got := d.kept(volume); got != test.kept {
				t.Errorf("got %t, want %t: %+v", got, test.kept, d.transfers[volume])
			}
		})
	}
}

// reach makes a write of a number, and the disk takes it.
func (d *data) reach(dev *device, number int, acknowledge bool) {
	d.last = number - 1
	d.write("node", volumeOf(dev.disk), dev)
	d.on[volumeOf(dev.disk)] = number
	if acknowledge {
		dev.page.ended, dev.page = d.now(), nil
	}
}
