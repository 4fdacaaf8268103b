package scheduler

import (
	"encoding/json"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/charts"
)

// TestTheDefinitionHasTheColumnsThatAreRead compares the columns with the CustomResourceDefinition
// that the chart installs.
func TestTheDefinitionHasTheColumnsThatAreRead(t *testing.T) {
	t.Parallel()
	text, err := charts.CRDs.ReadFile("azuredisk/files/crds/disk.csi.azure.com_azvolumeattachments.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(text, &crd); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{"Name": ".metadata.name"} // the API server adds it
	for _, column := range crd.Spec.Versions[0].AdditionalPrinterColumns {
		got[column.Name] = column.JSONPath
	}
	for column, want := range map[string]string{
		"Volume": ".spec.volumeName", "Node": ".spec.nodeName", "Role": ".spec.role", "State": ".status.state",
		"Deleting": ".metadata.deletionTimestamp", "Name": ".metadata.name",
	} {
		if got[column] != want {
			t.Errorf("column %s: got %q, want %q", column, got[column], want)
		}
	}
	for _, column := range attachmentListing("n").Columns {
		if got[column] == "" {
			t.Errorf("the definition has no column %s", column)
		}
	}
}

// TestARowAndAnObjectAreKeptAlike compares what is kept of an attachment that is listed as a row
// and as an object.
func TestARowAndAnObjectAreKeptAlike(t *testing.T) {
	t.Parallel()
	l := attachmentListing("n")
	for name, c := range map[string]struct {
		object string
		cells  []string
	}{
		"a replica": {
			`{"metadata":{"name":"a","namespace":"n"},"spec":{"volumeName":"v","nodeName":"w","role":"Replica"},"status":{"state":"Attached"}}`,
			[]string{"a", "v", "w", string(apiv1.RoleReplica), string(apiv1.AttachmentAttached), ""},
		},
		"a primary that is being deleted": {
			`{"metadata":{"name":"a","namespace":"n","deletionTimestamp":"2026-11-01T12:00:00Z"},"spec":{"volumeName":"v","nodeName":"w","role":"Primary"},"status":{"state":"Attached"}}`,
			[]string{"a", "v", "w", string(apiv1.RolePrimary), string(apiv1.AttachmentAttached), "5s"},
		},
		"no status": {`{"metadata":{"name":"a","namespace":"n"},"spec":{"volumeName":"v","nodeName":"w","role":"Primary"}}`,
			[]string{"a", "v", "w", string(apiv1.RolePrimary), "", ""}},
	} {
		var o listedAttachment
		if err := json.Unmarshal([]byte(c.object), &o); err != nil {
			t.Fatal(err)
		}
		whole, row := l.Whole(&o), l.Row(c.cells)
		if got, want := keepAttachment(row), keepAttachment(whole); got != want || row.GetName() != whole.GetName() ||
			row.GetNamespace() != whole.GetNamespace() {
			t.Errorf("%s: got %+v of the row, want %+v", name, got, want)
		}
	}
}
