package azure

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/internal/operation"
)

// FuzzResource reads any answer as the resources that the driver asks for.
func FuzzResource(f *testing.F) {
	for _, seed := range []string{
		`{"id":"/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d","location":"eastus","zones":["1"],"sku":{"name":"Premium_LRS"},"tags":{"a":"b"},"managedBy":"/vm",
		"managedByExtended":["/vm","/vm2"],"properties":{"diskSizeGB":4,"diskSizeBytes":4294967296,"maxShares":2,
		"provisioningState":"Succeeded","shareInfo":[{"vmUri":"/vm3"}],"completionPercent":50,
		"creationData":{"createOption":"Copy","sourceResourceId":"/snap"},
		"encryption":{"diskEncryptionSetId":"/des","type":"EncryptionAtRestWithCustomerKey"},
		"timeCreated":"2026-01-01T00:00:00Z"}}`,
		`{"properties":{"diskSizeGB":8,"snapshotAccessState":"InstantAccess","completionPercent":10,"incremental":true,"provisioningState":"Succeeded","creationData":{}}}`,
		`{"zones":[null],"managedByExtended":[null],"tags":{"a":null},"properties":{"shareInfo":[null,{}],"creationData":null}}`,
		`{"name":"Standard_D4s_v5","properties":{"storageProfile":{"dataDisks":[{"lun":0,"managedDisk":{"id":"/d"},"toBeDetached":true},null,{}]},"instanceView":{"statuses":[{"code":"PowerState/running"},null,{"code":""}]}}}`,
		`{}`, `{"sku":{},"properties":{}}`, `{"properties":{"diskSizeGB":-1,"maxShares":0}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var disk armcompute.Disk
		if json.Unmarshal(body, &disk) == nil {
			if seen := viewOfDisk(&disk); seen.MaxShares < 1 || seen.Ready && seen.State != operation.StateSucceeded {
				t.Errorf("a disk with %d shares, ready in the state %q", seen.MaxShares, seen.State)
			}
		}
		var snapshot armcompute.Snapshot
		if json.Unmarshal(body, &snapshot) == nil {
			if seen := viewOfSnapshot(&snapshot); seen.Ready && seen.state != operation.StateSucceeded {
				t.Errorf("a snapshot is ready in the state %q", seen.state)
			}
		}
	})
}

// answers gives every request the same answer.
type answers []byte

// Do implements policy.Transporter.
func (a answers) Do(req *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK,
		Status:     "200 OK",
		Header:     http.Header{"Content-Type": {"application/json"}},
		Body:       io.NopCloser(bytes.NewReader(a)),
		Request:    req,
	}, nil
}

// GetToken implements azcore.TokenCredential.
func (answers) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: "any", ExpiresOn: time.Now().Add(time.Hour)}, nil
}

// FuzzAnswer gives any answer to each of the driver's questions, through Azure's library. The
// driver survives it.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{
		`{"value":[null]}`, `{"value":[{}]}`, `{"value":null,"nextLink":""}`, `{}`, `null`, `[]`, ``,
		`{"value":[{"name":"Standard_D4s_v5","resourceType":"virtualMachines","capabilities":[{"name":"MaxDataDiskCount","value":"8"},null],"locationInfo":[{"location":"eastus","zoneDetails":[null]}]}]}`,
		`{"value":[{"name":"Premium_LRS","resourceType":"disks","capabilities":[{"name":"MinSizeGiB","value":"x"}],"locationInfo":[{"location":"eastus","zones":["1",null]}],"restrictions":[{"type":"Zone","restrictionInfo":{"zones":["1"]}},null]}]}`,
		`{"value":[{"name":{"value":"PremiumDiskCount"},"limit":10,"currentValue":20},{"name":null}]}`,
		`{"id":"/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/vm","properties":{"storageProfile":{"dataDisks":[{"lun":0,"managedDisk":{"id":"/d"}},null,{}]},"instanceView":{"statuses":[{"code":"PowerState/running"},null]}}}`,
	} {
		f.Add([]byte(seed))
	}
	const group = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/"
	scope := provisioner.Scope{SubscriptionID: "s", ResourceGroup: "g"}
	f.Fuzz(func(t *testing.T, body []byte) {
		if bytes.Contains(bytes.ToLower(body), []byte("nextlink")) {
			return // the next page is the same one, for ever
		}
		a := answers(body)
		c, err := New(t.Context(), Options{
			Credential:     a,
			Transport:      a,
			SubscriptionID: "s",
			Cloud:          cloud.AzurePublic,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx := t.Context()
		_, _ = c.Disks().Get(ctx, group+"disks/d")
		_, _ = c.Disks().List(ctx, scope)
		_, _ = c.Snapshots().Get(ctx, group+"snapshots/s")
		_, _ = c.Snapshots().List(ctx, scope)
		_, _ = c.Instances().Get(ctx, group+"virtualMachines/vm")
		_, _ = c.Instances().Get(ctx, group+"virtualMachineScaleSets/set/virtualMachines/0")
		_, _ = c.Attachments().List(ctx, group+"virtualMachines/vm")
		_, _ = c.SKUs().VM(ctx, "eastus", "Standard_D4s_v5")
		_, _ = c.SKUs().Disk(ctx, "eastus", "Premium_LRS", 4<<30)
		_, _ = c.SKUs().Quota(ctx, "s", "eastus", "Premium_LRS")
	})
}
