package azure

import (
	"maps"
	"testing"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func TestADiskGetsALUNThatIsNeitherTakenNorRecorded(t *testing.T) {
	t.Parallel()
	all := map[int32]bool{}
	for lun := range int32(maxLUNs) {
		all[lun] = true
	}
	for name, test := range map[string]struct {
		recorded map[int32]bool
		attached []provisioner.Attachment
		want     map[string]int32
	}{
		"recorded and detached outside":   {map[int32]bool{0: true, 2: true}, nil, map[string]int32{"a": 1, "b": 3}},
		"of another tool, not recorded":   {map[int32]bool{0: true}, []provisioner.Attachment{{DiskID: "x", LUN: 1}}, map[string]int32{"a": 2, "b": 3}},
		"attached already, keeps its own": {map[int32]bool{0: true}, []provisioner.Attachment{{DiskID: "A", LUN: 5}}, map[string]int32{"b": 1}},
		"none left":                       {all, nil, map[string]int32{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := freeLUNs([]string{"a", "b"}, maps.Clone(test.recorded), test.attached)
			if !maps.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
