package operation

import (
	"errors"
	"testing"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// FuzzToken reads any text as a resume token. An accepted token is of a requested kind, and is
// written as it was read.
func FuzzToken(f *testing.F) {
	for _, seed := range []string{
		Token{Kind: CreateDisk, ID: "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d"}.Text(),
		Token{
			Kind: UpdateDisk,
			ID:   "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d",
			SDK:  `{"type":"x","token":{"asyncURL":"https://evil.example"}}`,
		}.Text(),
		`{"v":1,"k":"CreateDisk"}`, `{"v":2}`, `{"v":1,"k":""}`, `{}`, `null`, `[]`, ``, `{"v":"1"}`,
		`{"v":1,"k":"CreateDisk","n":-1,"t":"{"}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ParseToken(text, CreateDisk, UpdateDisk)
		if err != nil {
			if !errors.Is(err, provisioner.InvalidArgument) {
				t.Errorf("%v is not InvalidArgument", err)
			}
			return
		}
		if got.Kind != CreateDisk && got.Kind != UpdateDisk {
			t.Errorf("taken, of the kind %q", got.Kind)
		}
		again, err := ParseToken(got.Text(), got.Kind)
		if err != nil || again != got {
			t.Errorf("%+v became %+v: %v", got, again, err)
		}
	})
}
