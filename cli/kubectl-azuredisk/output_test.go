package main

import (
	"maps"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
)

// TestDocumentsOverARealAPIServer looks at the structured output of each command.
func TestDocumentsOverARealAPIServer(t *testing.T) {
	l := newLab(t)
	l.allow(t, "operator", rbacv1.PolicyRule{
		APIGroups: []string{apiv1.GroupName}, Resources: []string{"*"}, Verbs: []string{"list"},
	})
	for name, test := range map[string]struct {
		args   []string
		kind   string
		member string
		unread string
	}{
		"get volumes": {[]string{"get", "volumes"}, "VolumeList", "items", ""},
		"get nodes":   {[]string{"get", "nodes"}, "NodeList", "items", ""},
		"get nodes, without the right to read them": {[]string{"get", "nodes", "--as", "operator"}, "NodeList", "items", "nodes"},
		"why":                    {[]string{"why", "pod", "cart-0"}, "Explanation", "remediation", ""},
		"what-if":                {[]string{"what-if", "node", "a"}, "WhatIfReport", "pods", ""},
		"doctor":                 {[]string{"doctor"}, "CheckReport", "checks", ""},
		"doctor, without rights": {[]string{"doctor", "--as", "stranger"}, "CheckReport", "checks", explain.AzVolumes},
		"preflight":              {[]string{"preflight"}, "CheckReport", "checks", ""},
		"version":                {[]string{"version"}, "Version", "kubernetesVersion", ""},
		"version, alone":         {[]string{"version", "--client"}, "Version", "clientVersion", ""},
		"version, no rights": {[]string{"version", "--as", "stranger"}, "Version", "clientVersion",
			explain.AzDriverNodes},
		"version, without a cluster": {[]string{"version", "-s", "https://127.0.0.1:1"}, "Version", "clientVersion", "version"},
	} {
		t.Run(name, func(t *testing.T) {
			members := map[string][]string{}
			for _, output := range []string{"json", "yaml"} {
				text, _ := l.run(t, append(test.args, "-o", output)...)
				var document map[string]any
				must(t, yaml.Unmarshal([]byte(text), &document))
				if document["apiVersion"] != explain.APIVersion || document["kind"] != test.kind || document[test.member] == nil {
					t.Errorf("%s: got:\n%s\nwant kind %s of %s with %s", output, text, test.kind, explain.APIVersion, test.member)
				}
				var unread []string
				list, _ := document["unread"].([]any)
				for _, u := range list {
					unread = append(unread, u.(map[string]any)["resource"].(string))
				}
				if test.unread == "" && len(unread) > 0 || test.unread != "" && !slices.Contains(unread, test.unread) {
					t.Errorf("%s: got %q as unread, want %q", output, unread, test.unread)
				}
				if isJSON := strings.HasPrefix(text, "{"); isJSON != (output == "json") {
					t.Errorf("%s: got:\n%s", output, text)
				}
				members[output] = slices.Sorted(maps.Keys(document))
			}
			if !slices.Equal(members["json"], members["yaml"]) {
				t.Errorf("got the members %q as JSON and %q as YAML, want the same", members["json"], members["yaml"])
			}
		})
	}
}

// TestVersionsOverARealAPIServer looks at the versions of the lab, for people.
func TestVersionsOverARealAPIServer(t *testing.T) {
	l := newLab(t)
	text, code := l.run(t, "version")
	for _, want := range []string{"Client: ", "Kubernetes: v1."} {
		if code != 0 || !strings.Contains(plain(text), want) {
			t.Errorf("got exit code %d, want 0, and %q in:\n%s", code, want, text)
		}
	}
}

// Without a configuration client-go would ask a server on this machine, which the user never named.
func TestWithoutAConfigurationTheAnswerSaysSo(t *testing.T) {
	t.Setenv("KUBECONFIG", t.TempDir()+"/none")
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	l := &lab{}
	for _, args := range [][]string{{"why", "pod", "x"}, {"doctor"}, {"bundle"}} {
		text, code := l.output(t, args...)
		if code == 0 || !strings.Contains(text, "no cluster is configured") {
			t.Errorf("%q: got exit code %d and %q, want that no cluster is configured", args, code, text)
		}
	}
}

func TestWrongUsageHasItsExitCode(t *testing.T) {
	l := &lab{}
	for name, args := range map[string][]string{
		"a command that does not exist": {"wyh"},
		"a flag that does not exist":    {"get", "nodes", "--every"},
		"a flag without its value":      {"why", "pod", "x", "-o"},
		"no argument":                   {"why"},
		"an argument too many":          {"why", "pod", "x", "y"},
		"a name that is missing":        {"why", "pod/"},
		"an argument of a checkup":      {"doctor", "x"},
		"an output that is not known":   {"version", "--output=text"},
	} {
		t.Run(name, func(t *testing.T) {
			if text, code := l.run(t, args...); code != 64 || text == "" {
				t.Errorf("got exit code %d and %q, want 64 and what is wrong", code, text)
			}
		})
	}
}

// TestCompletionOverARealAPIServer asks as kubectl does, by kubectl_complete-azuredisk.
func TestCompletionOverARealAPIServer(t *testing.T) {
	l := newLab(t)
	for name, test := range map[string]struct{ args, want []string }{
		"commands":              {[]string{"wh"}, []string{"what-if", "why"}},
		"what is listed":        {[]string{"get", ""}, []string{"volumes", "nodes"}},
		"what can be explained": {[]string{"why", ""}, []string{"pod", "pvc", "pv", "node", "snapshot"}},
		"pods":                  {[]string{"why", "pod", ""}, []string{"cart-0", "cart-old"}},
		"pods behind a slash":   {[]string{"why", "po/"}, []string{"po/cart-0", "po/cart-old"}},
		"claims":                {[]string{"why", "pvc", ""}, []string{"data"}},
		"PersistentVolumes":     {[]string{"why", "pv", ""}, []string{"pv"}},
		"nodes":                 {[]string{"why", "node", ""}, []string{"a", "b"}},
		"zones":                 {[]string{"what-if", "zone", ""}, []string{"eastus-1"}},
		"a kind that is not":    {[]string{"why", "service", ""}, nil},
		"a third argument":      {[]string{"why", "pod", "cart-0", ""}, nil},
		"formats":               {[]string{"doctor", "-o", ""}, []string{"json", "yaml"}},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"__complete"}, test.args...)
			if len(test.args) > 1 {
				args = slices.Insert(args, 2, "--kubeconfig", l.kubeconfig, "-n", l.namespace)
			}
			text, _ := l.output(t, args...)
			var got []string
			for line := range strings.Lines(text) {
				if word, _, _ := strings.Cut(strings.TrimSpace(line), "\t"); !strings.HasPrefix(word, ":") {
					got = append(got, word)
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
