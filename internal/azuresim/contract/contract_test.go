package contract

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

const (
	disk = "https://management.azure.com/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d"
	vm   = "https://management.azure.com/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/v"
)

func description(t *testing.T) *Description {
	t.Helper()
	d, err := Describe()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// version is the api-version of the SDK for a request.
func version(t *testing.T, method, at string) string {
	t.Helper()
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	c, ok := description(t).find(method, u.Path)
	if !ok || c.version == "" {
		t.Fatalf("%s %s is not described", method, at)
	}
	return c.version
}

func TestAFieldThatIsWrongOnPurposeIsFound(t *testing.T) {
	const (
		put = `{"location": "eastus", "properties": {"diskSizeGB": 4, "creationData": {"createOption": "Empty"}}}`
		got = `{"location": "eastus", "id": "/x", "properties": {"creationData": {"createOption": "Empty"},
			"timeCreated": "2026-02-12T03:08:28.2136254+00:00"}}`
	)
	type exchange struct {
		method, url, request string
		status               int
		answer               string
		want                 string // part of the fault; "" for none
	}
	asked := func(method, request, want string) exchange {
		return exchange{method, disk, request, 202, got, want}
	}
	answered := func(status int, answer, want string) exchange {
		return exchange{http.MethodGet, disk, "", status, answer, want}
	}
	attach := func(entry, want string) exchange {
		return exchange{http.MethodPost, vm + "/attachDetachDataDisks", `{"dataDisksToAttach": [` + entry + `]}`, 202, "", want}
	}
	edit := func(text, old, replacement string) string { return strings.Replace(text, old, replacement, 1) }
	for name, test := range map[string]exchange{
		"a disk is created":                 asked(http.MethodPut, put, ""),
		"an unknown member":                 asked(http.MethodPut, edit(put, "diskSizeGB", "diskSizeGiB"), "diskSizeGiB"),
		"a member of another JSON type":     asked(http.MethodPut, edit(put, "4", `"4"`), "diskSizeGB"),
		"a required member is missing":      asked(http.MethodPut, edit(put, `"createOption": "Empty"`, ""), "createOption"),
		"a read-only member in a request":   asked(http.MethodPut, edit(put, "{", `{"id": "/x", `), "request.id"),
		"null in a request":                 asked(http.MethodPatch, `{"properties": {"diskAccessId": null}}`, "diskAccessId"),
		"an unknown member in the answer":   answered(200, edit(got, "timeCreated", "created"), "answer.properties.created"),
		"a time of another form":            answered(200, edit(got, "T03", " 03"), "timeCreated"),
		"a member missing in the answer":    answered(200, edit(got, `"location": "eastus", `, ""), "answer.location"),
		"a body where none is described":    {http.MethodDelete, disk, "", 202, `{}`, "want none"},
		"a status that is not described":    {http.MethodPut, disk, put, 203, got, "203"},
		"a refusal without a code":          answered(404, `{"error": {"message": "m"}}`, "code"),
		"a refusal":                         answered(404, `{"error": {"code": "c", "message": "m"}}`, ""),
		"a call that the SDK does not have": {http.MethodPost, disk + "/attach", "", 200, "", "no such call"},
		"a disk is attached":                attach(`{"diskId": "/d", "lun": 3}`, ""),
		"an attach by a name of its own":    attach(`{"id": "/d"}`, "[0].id"),
	} {
		t.Run(name, func(t *testing.T) {
			at := test.url
			if !strings.HasSuffix(at, "/attach") {
				at += "?api-version=" + version(t, test.method, at)
			}
			u, err := url.Parse(at)
			if err != nil {
				t.Fatal(err)
			}
			faults := description(t).Check(Exchange{
				Method:  test.method,
				URL:     u,
				Request: []byte(test.request),
				Status:  test.status,
				Header:  http.Header{"Azure-Asyncoperation": {"https://x"}},
				Answer:  []byte(test.answer),
			})
			switch {
			case test.want == "" && len(faults) > 0:
				t.Errorf("got %q, want no fault", faults)
			case test.want != "" && !strings.Contains(strings.Join(faults, "\n"), test.want):
				t.Errorf("got %q, want a fault with %q", faults, test.want)
			}
		})
	}
}
