package chart_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/azuredisk-csi/azuredisk/internal/testkit/tree"
)

// Each right that the chart gives to an account is in the threat model, with what the account's
// holder could do with it, and the threat model has no other. Both are written as "account: verb
// resource named name, where".
func TestEachRightHasAPlaceInTheThreatModel(t *testing.T) {
	t.Parallel()
	given := map[string]bool{}
	for _, set := range []string{
		"metrics.listen=network,controller.maintenance.preempt=move",
		"csiDriver.attachRequired=true,cloud.secretNamespace=credentials",
	} {
		list := objects(t, render(t, "--set", "driverNamespace=objects,snapshot.enabled=true,"+set))
		maps.Copy(given, boundRights(t, list))
	}
	named := namedRights(t)
	for _, right := range slices.Sorted(maps.Keys(given)) {
		if !named[right] {
			t.Errorf("the chart gives %q, and docs/explanation/security.md does not say what its holder could do with it", right)
		}
	}
	for _, right := range slices.Sorted(maps.Keys(named)) {
		if !given[right] {
			t.Errorf("docs/explanation/security.md names %q, and the chart does not give it", right)
		}
	}
}

// boundRights are the rights of all service accounts. A role that the chart does not make is a
// right of its own.
func boundRights(t *testing.T, list []*unstructured.Unstructured) map[string]bool {
	t.Helper()
	roles := map[string]*unstructured.Unstructured{}
	for _, object := range list {
		if kind := object.GetKind(); kind == "Role" || kind == "ClusterRole" {
			roles[kind+"/"+object.GetNamespace()+"/"+object.GetName()] = object
		}
	}
	rights := map[string]bool{}
	for _, object := range list {
		if !strings.HasSuffix(object.GetKind(), "RoleBinding") {
			continue
		}
		where := "cluster"
		if object.GetKind() == "RoleBinding" {
			where = map[string]string{
				namespace:     "release",
				"objects":     "objects",
				"credentials": "credential",
			}[object.GetNamespace()]
			if where == "" {
				where = object.GetNamespace()
			}
		}
		kind, _, _ := unstructured.NestedString(object.Object, "roleRef", "kind")
		name, _, _ := unstructured.NestedString(object.Object, "roleRef", "name")
		for _, subject := range nested(t, object, "subjects") {
			for _, right := range rightsOfRole(t, roles[kind+"/"+object.GetNamespace()+"/"+name], name) {
				rights[fmt.Sprintf("%v: %s, %s", subject["name"], right, where)] = true
			}
		}
	}
	return rights
}

func rightsOfRole(t *testing.T, role *unstructured.Unstructured, name string) (rights []string) {
	t.Helper()
	if role == nil {
		return []string{"role " + name}
	}
	for _, rule := range nested(t, role, "rules") {
		for _, resource := range append(texts(rule, "resources"), texts(rule, "nonResourceURLs")...) {
			for _, verb := range texts(rule, "verbs") {
				rights = append(rights, limitedTo(texts(rule, "resourceNames"), verb+" "+resource)...)
			}
		}
	}
	return rights
}

// limitedTo returns a right for each of the names that it is limited to, or the right itself if
// there are none.
func limitedTo(names []string, right string) (rights []string) {
	for _, name := range names {
		rights = append(rights, right+" named "+name)
	}
	if len(names) == 0 {
		return []string{right}
	}
	return rights
}

var quoted = regexp.MustCompile("`([^`]+)`")

// item is an item of a list of the page: "* verb, verb `resource`, `resource` named `name` (where):
// what the holder could do".
var item = regexp.MustCompile("\\* ([a-z, ]+) (`[^(]*?)(?: named ([^(]*))? \\(([a-z-]+)\\): ")

// namedRights are the rights in the lists of the page, one list for each account.
func namedRights(t *testing.T) map[string]bool {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(tree.Root(), "docs", "explanation", "security.md"))
	must(t, err)
	_, section, found := strings.Cut(string(raw), "\n## What each account may do\n")
	if !found {
		t.Fatal("docs/explanation/security.md has no section on what each account may do")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	rights := map[string]bool{}
	for _, list := range strings.Split(section, "\n### ")[1:] {
		account := unquoted(list)[0]
		for _, match := range item.FindAllStringSubmatch(strings.Join(strings.Fields(list), " "), -1) {
			verbs, resources, names, where := match[1], match[2], match[3], match[4]
			for _, resource := range unquoted(resources) {
				for verb := range strings.SplitSeq(verbs, ", ") {
					for _, right := range limitedTo(unquoted(names), verb+" "+resource) {
						rights[fmt.Sprintf("%s: %s, %s", account, right, where)] = true
					}
				}
			}
		}
	}
	return rights
}

func unquoted(text string) (words []string) {
	for _, match := range quoted.FindAllStringSubmatch(text, -1) {
		words = append(words, match[1])
	}
	return words
}
