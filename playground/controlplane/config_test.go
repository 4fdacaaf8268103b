package controlplane

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

func TestSchedulerConfigNamesTheExtender(t *testing.T) {
	type object = map[string]any
	base := func() object {
		return object{
			"apiVersion":       "kubescheduler.config.k8s.io/v1",
			"kind":             "KubeSchedulerConfiguration",
			"clientConnection": object{"kubeconfig": "/k"},
			"leaderElection":   object{"leaderElect": false},
		}
	}
	with := base()
	with["extenders"] = []any{object{
		"urlPrefix":        "http://10.232.0.20:29706",
		"filterVerb":       "filter",
		"prioritizeVerb":   "prioritize",
		"weight":           float64(10),
		"ignorable":        true,
		"nodeCacheCapable": true,
		"enableHTTPS":      false,
		"httpTimeout":      "2s",
	}}
	secure := base()
	secure["extenders"] = []any{object{
		"urlPrefix":        "https://e",
		"filterVerb":       "",
		"prioritizeVerb":   "",
		"weight":           float64(0),
		"ignorable":        false,
		"nodeCacheCapable": false,
		"enableHTTPS":      true,
		"tlsConfig":        object{"insecure": false, "caFile": "/ca"},
	}}
	cases := map[string]struct {
		extender *Extender
		want     object
	}{
		"without an extender": {nil, base()},
		"with one": {
			&Extender{URL: "http://10.232.0.20:29706", FilterVerb: "filter", PrioritizeVerb: "prioritize", Weight: 10,
				Ignorable: true, NodeCacheCapable: true, Timeout: "2s"}, with},
		"with one over HTTPS": {&Extender{URL: "https://e", HTTPS: true, CAFile: "/ca"}, secure},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			data, err := schedulerConfig("/k", c.extender)
			if err != nil {
				t.Fatal(err)
			}
			var got object
			if err := yaml.Unmarshal(data, &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
