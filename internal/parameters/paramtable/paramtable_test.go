package paramtable_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/azuredisk-csi/azuredisk/internal/parameters/paramtable"
)

type parameters struct {
	name  string
	count int64
	on    bool
}

var table = paramtable.Table[parameters]{
	paramtable.OneOf("name", []string{"A", "B"}, "A", func(p *parameters, v string) { p.name = v }, "alias"),
	paramtable.Integer("count", 1, 5, "1", func(p *parameters, v int64) { p.count = v }),
	paramtable.Boolean("on", func(p *parameters, v bool) { p.on = v }),
	{Name: "old", Allowed: "any text"},
}

func TestReadStoresWhatIsAllowedAndNamesEveryFault(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		raw           map[string]string
		want          parameters
		faults        []string // a text in each, in order
		withoutEffect []string
	}{
		"names in any case, and aliases": {raw: map[string]string{"ALIAS": "B", "Count": "5", "ON": "True"},
			want: parameters{"B", 5, true}},
		"one without an effect":      {raw: map[string]string{"old": "x"}, withoutEffect: []string{"old"}},
		"the same twice, said twice": {raw: map[string]string{"name": "A", "alias": "A"}, want: parameters{name: "A"}},
		"twice, and differently": {raw: map[string]string{"name": "A", "alias": "B"}, want: parameters{name: "B"},
			faults: []string{"given twice"}},
		"unknown, with the nearest": {
			raw: map[string]string{"cuont": "1"}, faults: []string{"nearest that is allowed: count"}},
		"all faults at once":              {raw: map[string]string{"count": "6", "name": "a"}, faults: []string{`"6"`, `"a"`}},
		"a value in another case than it": {raw: map[string]string{"name": "b"}, faults: []string{"A, B"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var p parameters
			faults, withoutEffect := table.Read(&p, test.raw)
			if p != test.want || !slices.Equal(withoutEffect, test.withoutEffect) || len(faults) != len(test.faults) {
				t.Fatalf("%+v, faults %q, without effect %q", p, faults, withoutEffect)
			}
			for i, text := range test.faults {
				if !strings.Contains(faults[i], text) {
					t.Errorf("%q does not say %q", faults[i], text)
				}
			}
		})
	}
}

func TestResourceNamesAreWhatAzureTakesAndStayDifferent(t *testing.T) {
	t.Parallel()
	valid := regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,78}[A-Za-z0-9_])?$`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.String().Draw(t, "a"), rapid.String().Draw(t, "b")
		nameA, nameB := paramtable.ResourceName(a, "snapshot"), paramtable.ResourceName(b, "snapshot")
		if !valid.MatchString(nameA) || (a == b) != (nameA == nameB) || paramtable.ResourceName(nameA, "snapshot") != nameA {
			t.Fatalf("%q and %q became %q and %q", a, b, nameA, nameB)
		}
	})
}

func TestNoMoreTagsAreNamedThanADiskHas(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]int{50: 0, 51: 1} {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf("tag-%d", i))
		}
		names, faults := paramtable.TagNames("removeTags", strings.Join(all, ","), ",")
		if len(names) != n || len(faults) != want {
			t.Errorf("got %d names and faults %q, want %d names and %d faults", len(names), faults, n, want)
		}
	}
}
