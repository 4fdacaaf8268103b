package refusal_test

import (
	"errors"
	"testing"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/refusal"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func TestTheReasonOfARefusalIsFoundInTheTextOfAnEvent(t *testing.T) {
	t.Parallel()
	err := refusal.Errorf(apiv1.ReasonFilesystemMismatch, "refusing to mount device %s", "/dev/sdc")
	if !errors.Is(err, provisioner.FailedPrecondition) {
		t.Errorf("got kind %s, want %s", provisioner.KindOf(err), provisioner.FailedPrecondition)
	}
	for name, c := range map[string]struct {
		text string
		want string
		rest string
	}{
		"the error alone": {err.Error(), apiv1.ReasonFilesystemMismatch, "refusing to mount device /dev/sdc"},
		"in the kubelet's words": {`MountVolume.MountDevice failed for volume "pvc-1" : rpc error: code = FailedPrecondition desc = ` +
			err.Error(), apiv1.ReasonFilesystemMismatch, "refusing to mount device /dev/sdc"},
		"another error":                       {"rpc error: code = Internal desc = mount failed: exit status 32", "", ""},
		"the word at the end":                 {"it is a FilesystemMismatch", "", ""},
		"the word alone":                      {"a FilesystemMismatch was found", "", ""},
		"a reason that is none of the driver": {"rpc error: SomethingElse: text", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, rest, ok := refusal.In(c.text)
			if got != c.want || rest != c.rest || ok != (c.want != "") {
				t.Errorf("got %q, %q, %t; want %q, %q", got, rest, ok, c.want, c.rest)
			}
		})
	}
}
