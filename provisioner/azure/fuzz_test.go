package azure

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// FuzzConfig reads any text as azure.json. What is taken must be whole, and no secret may show in what is refused.
func FuzzConfig(f *testing.F) {
	for _, seed := range []string{
		`{"cloud":"AzurePublicCloud","tenantId":"t","subscriptionId":"s","resourceGroup":"g","location":"West Europe","useManagedIdentityExtension":true,"userAssignedIdentityID":"id"}`,
		`{"tenantId":"t","subscriptionId":"s","resourceGroup":"g","location":"eastus","aadClientId":"c","aadClientSecret":"hush"}`,
		`{"subscriptionId":"s","resourceGroup":"g","location":"eastus","tenantId":"t","aadClientId":"c","aadClientCertPath":"/p","aadClientCertPassword":"hush"}`,
		`{"cloud":"AzureStackCloud","identitySystem":"adfs","resourceManagerEndpoint":"https://management.local","subscriptionId":"s","resourceGroup":"g","location":"local","aadClientId":"c","aadClientSecret":"x"}`,
		"subscriptionId: s\nresourceGroup: g\nlocation: eastus\naadMSIDataPlaneIdentityPath: /p\n",
		`{"useFederatedWorkloadIdentityExtension":"yes"}`, `{"aadClientSecret":{"hush":1}}`, `[]`, `null`, `{`, "", "\xff\xfe", "a: &a [*a]", `{"resourceManagerEndpoint":"http://[::1"}`,
		`{"vmType":"vmss","cloudProviderBackoff":true,"cloudProviderRateLimitQPS":6,"location":""}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := LoadConfig(text, nil)
		if err != nil {
			return
		}
		if c.SubscriptionID == "" || c.ResourceGroup == "" || c.Location == "" || c.identity() == identityNone {
			t.Errorf("taken, though it is not whole: %+v", c)
		}
		manager, err := url.Parse(endpointOf(c.CloudConfiguration()))
		if err != nil || manager.Host == "" || manager.Scheme != "https" && manager.Scheme != "http" {
			t.Errorf("the endpoint is %q", endpointOf(c.CloudConfiguration()))
		}
		if plainHTTP(c.CloudConfiguration().ActiveDirectoryAuthorityHost) && manager.Scheme != "http" {
			t.Errorf("secrets would go to %s in the clear", c.CloudConfiguration().ActiveDirectoryAuthorityHost)
		}
		if again := c.describe(); len(c.AADClientSecret) > 8 && strings.Contains(again, string(c.AADClientSecret)) && c.AADClientID != string(c.AADClientSecret) {
			t.Errorf("the secret shows in %q", again)
		}
	})
}

// FuzzCloudMetadata reads any answer as a cloud's description of itself.
func FuzzCloudMetadata(f *testing.F) {
	for _, seed := range []string{
		`{"name":"Mars","authentication":{"loginEndpoint":"https://login.mars/","audiences":["https://m/"]}}`,
		`[{"name":"Mars","authentication":{"loginEndpoint":"https://login.mars","audiences":[]}},{"name":"Venus"}]`,
		`{"authentication":{"loginEndpoint":"https://adfs.local/adfs","audiences":["a"]}}`, `[]`, `{}`, `null`, `[null]`, `"x"`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		c := Config{Cloud: "Mars", ResourceManagerEndpoint: "https://arm.example"}
		if c.takeMetadata(body) != nil {
			return
		}
		if !strings.HasPrefix(strings.ToLower(c.ActiveDirectoryEndpoint), "https://") {
			t.Errorf("the authority %q is not of https", c.ActiveDirectoryEndpoint)
		}
	})
}

// FuzzIdentityFile reads any file as a certificate, and as an identity of the data plane.
func FuzzIdentityFile(f *testing.F) {
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), "")
	f.Add([]byte("\x30\x82\x00\x00"), "password")
	f.Add([]byte(`{"client_id":"c","tenant_id":"t","client_secret":"AAAA","authentication_endpoint":"https://a"}`), "")
	f.Fuzz(func(t *testing.T, file []byte, password string) {
		if c, err := parseCertificate(file, Secret(password)); err == nil && (len(c.chain) == 0 || c.key == nil) {
			t.Error("taken without a certificate or a key")
		}
		if id, _, err := parseDataPlaneIdentity(file); err == nil && (id.ClientID == "" || id.TenantID == "") {
			t.Errorf("taken though it is not whole: %+v", id)
		}
	})
}

// FuzzRefusal translates any answer that refuses. It must become one of the kinds, with the answer's status, and tell of silence that Azure asks for.
func FuzzRefusal(f *testing.F) {
	for _, seed := range []struct {
		status           int
		retry, code, doc string
	}{
		{409, "", "OperationNotAllowed", `{"error":{"code":"OperationNotAllowed","target":"dataDisks","message":"The maximum number of data disks allowed to be attached to a VM of this size is 4."}}`},
		{429, "300", "", `{"error":{"code":"OperationNotAllowed","details":[{"code":"TooManyRequests","target":"HighCostGet","message":"{}"}]}}`},
		{404, "", "", `{"error":{"code":"ParentResourceNotFound"}}`}, {403, "", "", `{"error":{"code":"LinkedAuthorizationFailed"}}`},
		{400, "", "", `{"code":"InvalidParameter","target":"instanceIds"}`}, {500, "Fri, 31 Dec 2027 23:59:59 GMT", "", ``},
		{200, "-1", "Conflict", `{"status":"Failed","error":{"code":"Conflict"}}`}, {502, "9999999999999999999", "", `<html>`},
		{409, "", "", `{"error":null}`}, {409, "", "", `{"error":[]}`}, {410, "1e9", "", `{"error":{"details":[null,{}]}}`},
		{502, "9227000000", "", "0"},
	} {
		f.Add(seed.status, seed.retry, seed.code, []byte(seed.doc))
	}
	kinds := map[provisioner.Kind]bool{}
	for _, k := range []provisioner.Kind{
		provisioner.NotFound, provisioner.AlreadyExists, provisioner.Conflict, provisioner.FailedPrecondition, provisioner.InsufficientCapacity,
		provisioner.InvalidArgument, provisioner.Unauthorized, provisioner.RateLimited, provisioner.Unavailable,
	} {
		kinds[k] = true
	}
	now := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, status int, retry, code string, body []byte) {
		header := http.Header{"Retry-After": {retry}, "X-Ms-Error-Code": {code}}
		request, err := http.NewRequest(http.MethodGet, "https://management.azure.com/", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer := &http.Response{StatusCode: status, Status: "?", Header: header, Body: io.NopCloser(strings.NewReader(string(body))), Request: request}
		translated := translate(runtime.NewResponseError(answer), now, "try")
		var e *provisioner.Error
		if !errors.As(translated, &e) || !kinds[provisioner.KindOf(translated)] {
			t.Fatalf("%v is of the kind %q", translated, provisioner.KindOf(translated))
		}
		if e.RetryAfter < 0 || e.RetryAfter > longestSilence {
			t.Errorf("silence of %s", e.RetryAfter)
		}
		_ = translated.Error()
	})
}

// FuzzResource reads any answer as the resources that the driver asks for.
func FuzzResource(f *testing.F) {
	for _, seed := range []string{
		`{"id":"/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d","location":"eastus","zones":["1"],"sku":{"name":"Premium_LRS"},"tags":{"a":"b"},"managedBy":"/vm",
		"managedByExtended":["/vm","/vm2"],"properties":{"diskSizeGB":4,"diskSizeBytes":4294967296,"maxShares":2,"provisioningState":"Succeeded","shareInfo":[{"vmUri":"/vm3"}],"completionPercent":50,
		"creationData":{"createOption":"Copy","sourceResourceId":"/snap"},"encryption":{"diskEncryptionSetId":"/des","type":"EncryptionAtRestWithCustomerKey"},"timeCreated":"2026-01-01T00:00:00Z"}}`,
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
			if seen := viewOfDisk(&disk); seen.MaxShares < 1 || seen.Ready && seen.state != stateSucceeded {
				t.Errorf("a disk with %d shares, ready in the state %q", seen.MaxShares, seen.state)
			}
		}
		var snapshot armcompute.Snapshot
		if json.Unmarshal(body, &snapshot) == nil {
			if seen := viewOfSnapshot(&snapshot); seen.Ready && seen.state != stateSucceeded {
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
		StatusCode: http.StatusOK, Status: "200 OK", Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(a)), Request: req,
	}, nil
}

// GetToken implements azcore.TokenCredential.
func (answers) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: "any", ExpiresOn: time.Now().Add(time.Hour)}, nil
}

// FuzzAnswer gives any answer to each of the driver's questions, through Azure's library. The driver survives it.
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
		c, err := New(t.Context(), Options{Credential: a, Transport: a, SubscriptionID: "s", Cloud: cloud.AzurePublic})
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

// FuzzToken reads any text as a resume token, of this package and of the SDK within. What is taken is of the kind that was asked for, and is
// written as it was read.
func FuzzToken(f *testing.F) {
	for _, seed := range []string{
		token{Kind: kindCreateDisk, ID: "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d"}.text(),
		token{Kind: kindUpdateDisk, ID: "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d", SDK: `{"type":"x","token":{"asyncURL":"https://evil.example"}}`}.text(),
		`{"v":1,"k":"create-disk"}`, `{"v":2}`, `{"v":1,"k":""}`, `{}`, `null`, `[]`, ``, `{"v":"1"}`, `{"v":1,"k":"create-disk","n":-1,"t":"{"}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parseToken(text, kindCreateDisk, kindUpdateDisk)
		if err != nil {
			if !errors.Is(err, provisioner.InvalidArgument) {
				t.Errorf("%v is not InvalidArgument", err)
			}
			return
		}
		if got.Kind != kindCreateDisk && got.Kind != kindUpdateDisk {
			t.Errorf("taken, of the kind %q", got.Kind)
		}
		again, err := parseToken(got.text(), got.Kind)
		if err != nil || again != got {
			t.Errorf("%+v became %+v: %v", got, again, err)
		}
	})
}
