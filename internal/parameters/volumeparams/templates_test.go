package volumeparams_test

import (
	"errors"
	"maps"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/azuredisk-csi/azuredisk/internal/parameters/volumeparams"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func TestTagsFromLabelsAndAnnotations(t *testing.T) {
	t.Parallel()
	claim := metav1.ObjectMeta{
		Labels:      map[string]string{"team": "db", "app.kubernetes.io/name": "shop", "empty": ""},
		Annotations: map[string]string{"example.com/cost": `a=b, <c> & "d"`, "long": strings.Repeat("x", 257)},
	}
	namespace := metav1.ObjectMeta{
		Labels:      map[string]string{"stage": "prod"},
		Annotations: map[string]string{"owner": "ops"},
	}
	for name, test := range map[string]struct {
		tags string
		want map[string]string
		says string // of the refusal; "" for none
	}{
		"a label":                {tags: "t=${pvc.labels.team}", want: map[string]string{"t": "db"}},
		"a label, with metadata": {tags: "t=${pvc.metadata.labels.team}", want: map[string]string{"t": "db"}},
		"a label with a prefix": {tags: "t=${pvc.labels.app.kubernetes.io/name}",
			want: map[string]string{"t": "shop"}},
		"an annotation of any text": {tags: "t=${pvc.annotations.example.com/cost}",
			want: map[string]string{"t": `a=b, <c> & "d"`}},
		"of the namespace": {tags: "t=${namespace.labels.stage}-${namespace.annotations.owner}",
			want: map[string]string{"t": "prod-ops"}},
		"beside names": {tags: "t=${pvc.name}/${pvc.namespace}/${pv.name}/${pvc.labels.team}",
			want: map[string]string{"t": "data/shop/pv-1/db"}},
		"an empty label":                {tags: "t=${pvc.labels.empty}", want: map[string]string{"t": ""}},
		"a missing label leaves no tag": {tags: "t=${pvc.labels.none}", want: map[string]string{}},
		"one of two labels is missing":  {tags: "t=${pvc.labels.team}-${pvc.labels.none}", want: map[string]string{}},
		"no template":                   {tags: "t=${pvc.status.team}", want: map[string]string{"t": "${pvc.status.team}"}},
		"a value that is too long": {tags: "t=${pvc.annotations.long}",
			says: "256 characters in the value, which is from ${pvc.annotations.long}"},
		"a value that fits, and one longer": {tags: "s=1,t=${pvc.annotations.long}", says: "t=xxx"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := volumeparams.Parse(map[string]string{
				"tags": test.tags, "csi.storage.k8s.io/pvc/name": "data", "csi.storage.k8s.io/pvc/namespace": "shop",
				"csi.storage.k8s.io/pv/name": "pv-1",
			})
			if err != nil {
				t.Fatal(err)
			}
			err = p.FillTags(claim, namespace)
			if test.says != "" {
				if !errors.Is(err, provisioner.InvalidArgument) || !strings.Contains(err.Error(), test.says) {
					t.Errorf("got %v, want an InvalidArgument that says %q", err, test.says)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			maps.DeleteFunc(p.Tags, func(name, _ string) bool { return name != "t" })
			if !maps.Equal(p.Tags, test.want) {
				t.Errorf("got tags %v, want %v", p.Tags, test.want)
			}
		})
	}
}

func TestAClassThatSetsATagReplacesItsTemplate(t *testing.T) {
	t.Parallel()
	raw := map[string]string{"tags": "team=${pvc.labels.team},stage=${namespace.labels.stage},fixed=1"}
	p, err := volumeparams.ParseWith(raw, map[string]string{"tags": "Team=mine"})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"stage": "${namespace.labels.stage}"}
	if !maps.Equal(p.TagTemplates(), want) || !volumeparams.ReadsNamespace(p.TagTemplates()) {
		t.Errorf("got %v, want %v: the class has set the other tag", p.TagTemplates(), want)
	}
	if volumeparams.ReadsNamespace(map[string]string{"t": "${pvc.labels.namespace}"}) {
		t.Error("a label of the claim counts as one of the namespace")
	}
}
