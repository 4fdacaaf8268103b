package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

// requests counts the requests of a client.
type requests struct {
	next  http.RoundTripper
	count *atomic.Int32
}

// RoundTrip counts a request.
func (r requests) RoundTrip(request *http.Request) (*http.Response, error) {
	r.count.Add(1)
	return r.next.RoundTrip(request)
}

// TestGetOverARealAPIServer lists with the rights of the cluster, and with the rights to read the
// driver's records alone.
func TestGetOverARealAPIServer(t *testing.T) {
	l := newLab(t)
	v := objects.NewVolume(objects.Owned("b", 2, apiv1.OwnershipHeld), func(v *apiv1.AzVolume) {
		v.Namespace, v.Spec.Disk.Name = l.namespace, "other"
		v.Name = apiv1.VolumeName(v.Spec.Disk.SubscriptionID, "g", "other")
		v.Spec.ClaimRef = objects.Claim("other/logs")
		v.Status.Replicas, v.Status.Fencing = &apiv1.ReplicaCount{Ready: 1, Wanted: 1}, apiv1.FencingForcedDetach
	})
	l.put(t, v)
	a := objects.NewAttachment("a", apiv1.RoleReplica, 0, apiv1.AttachmentAttached)
	a.Namespace, a.Name, a.Spec.VolumeName = l.namespace, apiv1.AttachmentName(v.Name, "a"), v.Name
	l.put(t, a)
	l.allow(t, "operator", rbacv1.PolicyRule{
		APIGroups: []string{apiv1.GroupName}, Resources: []string{"*"}, Verbs: []string{"list"},
	})
	for name, test := range map[string]struct {
		args     []string
		code     int
		requests int32
		want     []string
		not      string
	}{
		"the volumes of a namespace": {[]string{"get", "volumes"}, 0, 3, []string{strings.Join(explain.VolumeColumns, " "),
			l.namespace + " data Created a 0/1"}, "logs"},
		"the volumes of all namespaces": {[]string{"get", "volumes", "-A"}, 0, 3, []string{
			"other logs Created b 1/1 a ForcedDetach", l.namespace + " data Created a 0/1"}, ""},
		"the nodes": {[]string{"get", "nodes"}, 0, 4, []string{strings.Join(explain.NodeColumns, " "),
			"a eastus-1 Ready Healthy 1 1 5/7", "b eastus-1 Ready Healthy 0 0 7/7"}, ""},
		"the nodes, without the right to read them": {[]string{"get", "nodes", "--as", "operator"}, 0, 4,
			[]string{"a eastus-1 Healthy 1 1 5/7"}, "Ready"},
		"volumes, without rights": {[]string{"get", "volumes", "--as", "developer"}, 3, 3,
			[]string{"cannot list azvolumes.disk.csi.azure.com: not allowed"}, "NAMESPACE"},
		"nodes, without rights": {[]string{"get", "nodes", "--as", "developer"}, 3, 4,
			[]string{"cannot list azdrivernodes.disk.csi.azure.com: not allowed"}, "SLOTS"},
		"a kind that is not listed":   {[]string{"get", "pods"}, 64, 0, []string{`invalid argument "pods"`}, "NAMESPACE"},
		"an output that is not known": {[]string{"get", "nodes", "-o", "xml"}, 64, 0, []string{"expected json or yaml"}, "NODE"},
	} {
		t.Run(name, func(t *testing.T) {
			var count atomic.Int32
			l.wrap = func(c *rest.Config) *rest.Config {
				c.Wrap(func(next http.RoundTripper) http.RoundTripper { return requests{next, &count} })
				return c
			}
			text, code := l.run(t, test.args...)
			if code != test.code || count.Load() != test.requests {
				t.Errorf("got exit code %d after %d requests, want %d after %d:\n%s", code, count.Load(), test.code,
					test.requests, text)
			}
			for _, want := range test.want {
				if !strings.Contains(plain(text), want) {
					t.Errorf("got:\n%s\nwant a text with %q", text, want)
				}
			}
			if test.not != "" && strings.Contains(plain(text), test.not) {
				t.Errorf("got:\n%s\nwant a text without %q", text, test.not)
			}
		})
	}
	t.Run("as JSON", func(t *testing.T) {
		text, code := l.run(t, "get", "volumes", "-A", "-o", "json")
		var list explain.List[explain.VolumeRow]
		if err := json.Unmarshal([]byte(text), &list); err != nil || code != 0 {
			t.Fatalf("got %v and exit code %d, want rows and 0:\n%s", err, code, text)
		}
		for _, row := range list.Items {
			if row.AzVolume == v.Name && row.Epoch == 2 && len(row.Warm) == 1 && row.Ownership == "Held" {
				return
			}
		}
		t.Errorf("got %+v, want volume %s, warm on a, held with epoch 2", list.Items, v.Name)
	})
}
