package azure

import (
	"encoding/json"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// token is the text by which another process resumes an operation.
type token struct {
	Version int  `json:"v"`
	Kind    kind `json:"k"`
	// ID of the disk, snapshot or VM that the operation is on.
	ID string `json:"id"`
	// SDK is the poller's own token; "" for an operation that is followed by reading the resource.
	SDK string `json:"t,omitempty"`
	// Of an attachment:
	DiskID   string `json:"disk,omitempty"`
	Shared   bool   `json:"shared,omitempty"`
	Together int    `json:"n,omitempty"` // how many disks travelled in the call
}

const tokenVersion = 1

func (t token) text() string {
	t.Version = tokenVersion
	text, err := json.Marshal(t)
	if err != nil {
		// Strings, a bool and an int can always be written.
		panic(err)
	}
	return string(text)
}

// parseToken reads a token of one of the kinds.
func parseToken(text string, kinds ...kind) (token, error) {
	var t token
	if err := json.Unmarshal([]byte(text), &t); err != nil || t.Version != tokenVersion {
		return t, provisioner.Errorf(provisioner.InvalidArgument, "%q is not the token of an operation", text)
	}
	for _, k := range kinds {
		if t.Kind == k {
			return t, nil
		}
	}
	return t, provisioner.Errorf(provisioner.InvalidArgument, "a token of the kind %q does not belong here", t.Kind)
}
