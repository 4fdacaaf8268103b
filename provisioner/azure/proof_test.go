package azure_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure"
)

// oneAnswer is a platform that always answers the same.
type oneAnswer struct {
	status int
	body   string
}

// Do implements policy.Transporter.
func (a oneAnswer) Do(req *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: a.status,
		Status:     http.StatusText(a.status),
		Header:     http.Header{"Content-Type": {"application/json"}},
		Body:       io.NopCloser(strings.NewReader(a.body)),
		Request:    req,
	}, nil
}

// GetToken implements azcore.TokenCredential.
func (a oneAnswer) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: "any", ExpiresOn: time.Now().Add(time.Hour)}, nil
}

// That a VM is gone, and that a disk is not attached to it, proves that a lost node cannot write.
// Only Azure's own word will do.
func TestOnlyACompleteAnswerOfAzureProvesThatAVMIsGone(t *testing.T) {
	const (
		vm    = "/subscriptions/" + subscription + "/resourceGroups/default/providers/Microsoft.Compute/virtualMachines/vm"
		disks = `"storageProfile": {"dataDisks": []}`
	)
	code := func(code string) string { return `{"error": {"code": "` + code + `", "message": "m"}}` }
	for name, test := range map[string]struct {
		answer oneAnswer
		want   provisioner.Kind // "" for a VM
	}{
		"the VM": {oneAnswer{200,
			`{"id": "` + strings.ToUpper(vm) + `", "properties": {` + disks + `}}`}, ""},
		"an empty object":    {oneAnswer{200, `{}`}, provisioner.Unavailable},
		"no properties":      {oneAnswer{200, `{"id": "` + vm + `"}`}, provisioner.Unavailable},
		"no storage profile": {oneAnswer{200, `{"id": "` + vm + `", "properties": {}}`}, provisioner.Unavailable},
		"another VM": {oneAnswer{200, `{"id": "` + vm + `2", "properties": {` + disks + `}}`},
			provisioner.Unavailable},
		"no such VM":                         {oneAnswer{404, code("ResourceNotFound")}, provisioner.NotFound},
		"no such resource group":             {oneAnswer{404, code("ResourceGroupNotFound")}, provisioner.NotFound},
		"a subscription that is not visible": {oneAnswer{404, code("SubscriptionNotFound")}, provisioner.Unauthorized},
		"a 404 of a proxy":                   {oneAnswer{404, `<html>not here</html>`}, provisioner.Unavailable},
		"a 410 of a proxy":                   {oneAnswer{410, ``}, provisioner.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T) {
				cloud, err := azure.New(t.Context(), azure.Options{
					Credential:     test.answer,
					Transport:      test.answer,
					SubscriptionID: subscription,
					Cloud:          labCloud(),
				})
				if err != nil {
					t.Fatal(err)
				}
				_, err = cloud.Instances().Get(t.Context(), vm)
				if provisioner.KindOf(err) != test.want || (err == nil) != (test.want == "") {
					t.Errorf("want %q, got %v", test.want, err)
				}
				op, err := cloud.Attachments().ForceDetach(t.Context(), vm, strings.Replace(vm, "virtualMachines", "disks", 1))
				if err == nil {
					err = op.Wait(t.Context())
				}
				if proof := test.want == "" || test.want == provisioner.NotFound; proof != (err == nil) || !proof &&
					!errors.Is(err, test.want) {
					t.Errorf("a forced detach ends with %v", err)
				}
			})
		})
	}
}

// If a disk does not exist, no VM can write to it, an AzVolume may be removed, and a volume counts
// as unpublished. If an answer names no VM of a disk, the disk may be attached elsewhere.
func TestOnlyACompleteAnswerProvesThatADiskOrSnapshotIsGone(t *testing.T) {
	const group = "/subscriptions/" + subscription + "/resourceGroups/default/providers/Microsoft.Compute/"
	code := func(code string) string { return `{"error": {"code": "` + code + `", "message": "m"}}` }
	for name, test := range map[string]struct {
		answer oneAnswer
		want   provisioner.Kind
	}{
		"no such resource":                   {oneAnswer{404, code("ResourceNotFound")}, provisioner.NotFound},
		"no such resource, in older words":   {oneAnswer{404, code("NotFound")}, provisioner.NotFound},
		"no such resource group":             {oneAnswer{404, code("ResourceGroupNotFound")}, provisioner.NotFound},
		"a subscription that is not visible": {oneAnswer{404, code("SubscriptionNotFound")}, provisioner.Unauthorized},
		"a 404 with an unknown code":         {oneAnswer{404, code("SomethingNew")}, provisioner.Unavailable},
		"a 404 of a proxy":                   {oneAnswer{404, `<html>not here</html>`}, provisioner.Unavailable},
		"a 410 of a proxy":                   {oneAnswer{410, ``}, provisioner.Unavailable},
		"an empty object":                    {oneAnswer{200, `{}`}, provisioner.Unavailable},
		"another resource": {oneAnswer{200, `{"id": "` + group + `disks/other", "properties": {}}`},
			provisioner.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T) {
				cloud, err := azure.New(t.Context(), azure.Options{
					Credential:     test.answer,
					Transport:      test.answer,
					SubscriptionID: subscription,
					Cloud:          labCloud(),
				})
				if err != nil {
					t.Fatal(err)
				}
				if _, err = cloud.Disks().Get(t.Context(), group+"disks/d"); !errors.Is(err, test.want) {
					t.Errorf("get disk: got %v, want %s", err, test.want)
				}
				if _, err = cloud.Snapshots().Get(t.Context(), group+"snapshots/s"); !errors.Is(err, test.want) {
					t.Errorf("get snapshot: got %v, want %s", err, test.want)
				}
				for what, begin := range map[string]func() (provisioner.Operation, error){
					"disk": func() (provisioner.Operation, error) { return cloud.Disks().Delete(t.Context(), group+"disks/d") },
					"snapshot": func() (provisioner.Operation, error) {
						return cloud.Snapshots().Delete(t.Context(), group+"snapshots/s")
					},
				} {
					if what == "snapshot" && test.answer.status == http.StatusOK {
						continue // the answer to a deletion that Azure has carried out
					}
					op, err := begin()
					if err == nil {
						err = op.Wait(t.Context())
					}
					if (err == nil) != (test.want == provisioner.NotFound) {
						t.Errorf("delete %s: got %v", what, err)
					}
				}
			})
		})
	}
}
