package azure

import (
	"encoding/json"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/batch"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/operation"
)

func TestAListIsSentBackWithTheChanges(t *testing.T) {
	t.Parallel()
	const mine = `{"lun":0,"name":"a","createOption":"Attach","managedDisk":{"id":"A"},"caching":"None","deleteOption":"Detach","toBeDetached":false}`
	const blob = `{"lun":1,"name":"blob","createOption":"Attach","vhd":{"uri":"https://x"}}`
	const creating = `{"lun":2,"name":"new","createOption":"Empty","diskSizeGB":4,"diskIOPSReadWrite":100}`
	change := func(kind operation.Kind, disk string) batch.Change {
		return batch.Change{Kind: kind, AttachRequest: provisioner.AttachRequest{DiskID: disk}}
	}
	for name, test := range map[string]struct {
		have    string
		changes []batch.Change
		taken   map[int32]bool
		want    string // "" for a refusal
	}{
		"entries of others stay, and their LUNs are taken": {
			have:    `[` + mine + `,` + blob + `,` + creating + `]`,
			changes: []batch.Change{change(operation.Attach, "b")},
			taken:   map[int32]bool{3: true},
			want: `[{"caching":"None","createOption":"Attach","deleteOption":"Detach","lun":0,"managedDisk":{"id":"A"},"name":"a","toBeDetached":false},` +
				`{"createOption":"Attach","lun":1,"name":"blob","vhd":{"uri":"https://x"}},` +
				`{"createOption":"Empty","diskSizeGB":4,"lun":2,"name":"new"},` +
				`{"createOption":"Attach","lun":4,"managedDisk":{"id":"b"}}]`,
		},
		"a disk that is listed is not attached twice": {
			have:    `[` + mine + `]`,
			changes: []batch.Change{change(operation.Attach, "a")},
			want:    `[{"caching":"None","createOption":"Attach","deleteOption":"Detach","lun":0,"managedDisk":{"id":"A"},"name":"a","toBeDetached":false}]`,
		},
		"a disk that leaves stays in the list, marked": {
			have:    `[` + mine + `]`,
			changes: []batch.Change{change(operation.Detach, "a"), change(operation.Attach, "b")},
			want: `[{"caching":"None","createOption":"Attach","deleteOption":"Detach","lun":0,"managedDisk":{"id":"A"},"name":"a","toBeDetached":true},` +
				`{"createOption":"Attach","lun":1,"managedDisk":{"id":"b"}}]`,
		},
		"a forced detach says so": {
			have:    `[` + mine + `]`,
			changes: []batch.Change{change(operation.ForceDetach, "a")},
			want:    `[{"caching":"None","createOption":"Attach","deleteOption":"Detach","detachOption":"ForceDetach","lun":0,"managedDisk":{"id":"A"},"name":"a","toBeDetached":true}]`,
		},
		"a disk that is not listed cannot leave": {have: `[]`, changes: []batch.Change{change(operation.ForceDetach, "a")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var have []*armcompute.DataDisk
			if err := json.Unmarshal([]byte(test.have), &have); err != nil {
				t.Fatal(err)
			}
			list, err := withChanges(have, test.changes, test.taken)
			if test.want == "" {
				if provisioner.KindOf(err) != provisioner.InvalidArgument {
					t.Errorf("got %v, %v, want InvalidArgument", list, err)
				}
				return
			}
			got, _ := json.Marshal(list)
			if err != nil || string(got) != test.want {
				t.Errorf("got %s, %v\nwant %s", got, err, test.want)
			}
		})
	}
}
