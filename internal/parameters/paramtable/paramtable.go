// Package paramtable reads the parameters of a Kubernetes class with a table, which has the allowed
// values, the meaning and the default of each parameter. The reference documentation is generated
// from the same table, so that the two cannot differ.
//
// Keys are compared without regard to case. An unknown parameter, a value that is not allowed and a
// parameter that is given twice are faults that name the parameter, the value and what is allowed;
// Read returns all of them at once. It does no I/O. Packages volumeparams and snapshotparams use
// it.
package paramtable

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/azuredisk-csi/azuredisk/internal/plan/resourceid"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// Key is one parameter of a class; P is the type of the parsed parameters.
type Key[P any] struct {
	// Name in its usual spelling.
	Name string
	// Aliases are other names of the parameter.
	Aliases []string
	// Allowed says which values are allowed.
	Allowed string
	// Default says which value counts if the parameter is not given.
	Default string
	// Check reports whether a value is allowed; nil allows all.
	Check func(string) bool
	// Set stores an allowed value; nil for a parameter that is accepted and has no effect.
	Set func(*P, string)
	// Effect says what the parameter does, and V1 how the V1 driver differs; both for the reference
	// documentation.
	Effect, V1 string
	// Change says what the parameter does to a resource that exists; "" for a parameter that cannot
	// be changed.
	Change string
}

// About returns the key with its documentation.
func (k Key[P]) About(effect, v1 string) Key[P] {
	k.Effect, k.V1 = effect, v1
	return k
}

// Changing returns the key of a parameter that can be changed while the resource exists.
func (k Key[P]) Changing(effect string) Key[P] {
	k.Change = effect
	return k
}

// Table has all parameters of a class.
type Table[P any] []Key[P]

// Changeable returns the parameters that can be changed, with their effect on a resource that
// exists. v1 says how the V1 driver treats a change of one.
func (t Table[P]) Changeable(v1 func(Key[P]) string) (changeable Table[P]) {
	for _, k := range t {
		if k.Change != "" {
			k.Default = ""
			changeable = append(changeable, k.About(k.Change, v1(k)))
		}
	}
	return changeable
}

// Read stores raw into p. An empty value counts as not given. It returns every fault, and the given
// parameters that have no effect.
func (t Table[P]) Read(p *P, raw map[string]string) (faults, withoutEffect []string) {
	given := map[string]string{} // canonical name to value
	for _, key := range slices.Sorted(maps.Keys(raw)) {
		value := raw[key]
		known, ok := t.lookup(key)
		if !ok {
			faults = append(faults, t.unknown(key, value))
			continue
		}
		if before, twice := given[known.Name]; twice && before != value {
			faults = append(faults, fmt.Sprintf("parameter %s: given twice, as %q and as %q; give it once (%s)", known.Name,
				before, value, key))
			continue
		}
		given[known.Name] = value
		if value == "" {
			continue
		}
		switch {
		case known.Check != nil && !known.Check(value):
			faults = append(faults, Fault(key, value, known.Allowed))
		case known.Set != nil:
			known.Set(p, value)
		}
		if known.Set == nil {
			withoutEffect = append(withoutEffect, known.Name)
		}
	}
	return faults, withoutEffect
}

// Overlay returns the parameters of under, overridden by the parameters of over. It compares names
// without regard to case and treats aliases as the same parameter.
func (t Table[P]) Overlay(under, over map[string]string) map[string]string {
	merged := make(map[string]string, len(under)+len(over))
	for name, value := range under {
		merged[name] = value
		for other := range over {
			if t.Canonical(name) == t.Canonical(other) {
				delete(merged, name)
			}
		}
	}
	maps.Copy(merged, over)
	return merged
}

// Canonical returns the usual spelling of a parameter that the table has, and another name in lower
// case.
func (t Table[P]) Canonical(name string) string {
	if known, ok := t.lookup(name); ok {
		return known.Name
	}
	return strings.ToLower(name)
}

// Known reports whether the table has a parameter with that name or alias.
func (t Table[P]) Known(name string) bool {
	_, ok := t.lookup(name)
	return ok
}

func (t Table[P]) lookup(name string) (Key[P], bool) {
	for _, k := range t {
		if strings.EqualFold(k.Name, name) ||
			slices.ContainsFunc(k.Aliases, func(a string) bool { return strings.EqualFold(a, name) }) {
			return k, true
		}
	}
	return Key[P]{}, false
}

// unknown names the known parameter that is spelled most like name.
func (t Table[P]) unknown(name, value string) string {
	best, distance := "", 1<<30
	for _, k := range t {
		for _, candidate := range append([]string{k.Name}, k.Aliases...) {
			if d := editDistance(strings.ToLower(name), strings.ToLower(candidate)); d < distance {
				best, distance = candidate, d
			}
		}
	}
	return fmt.Sprintf("parameter %s (value %q) is not known; the nearest that is allowed: %s", name, value, best)
}

// longestCompared limits the comparison of names, because a longer name cannot be a misspelled
// parameter.
const longestCompared = 64

// editDistance is the number of insertions, deletions and replacements from a to b.
func editDistance(a, b string) int {
	a = a[:min(len(a), longestCompared)]
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// OneOf is a parameter with a list of allowed values, compared exactly; an empty value counts as
// not given.
func OneOf[P any](name string, values []string, fallback string, set func(*P, string), aliases ...string) Key[P] {
	return Key[P]{
		Name:    name,
		Aliases: aliases,
		Allowed: strings.Join(values, ", "),
		Default: fallback,
		Set:     set,
		Check:   func(v string) bool { return v == "" || slices.Contains(values, v) },
	}
}

// Text is a parameter that allows any text.
func Text[P any](name, allowed, fallback string, set func(*P, string)) Key[P] {
	return Key[P]{
		Name:    name,
		Allowed: allowed,
		Default: fallback,
		Set:     set,
	}
}

// Integer is a whole number from low to high; a high from 1<<31 on is not named.
func Integer[P any](name string, low, high int64, fallback string, set func(*P, int64)) Key[P] {
	allowed := fmt.Sprintf("a whole number from %d", low)
	if high < 1<<31 {
		allowed = fmt.Sprintf("a whole number from %d to %d", low, high)
	}
	return Key[P]{
		Name:    name,
		Allowed: allowed,
		Default: fallback,
		Check:   IsInteger(low, high),
		Set: func(p *P, v string) {
			n, _ := strconv.ParseInt(v, 10, 64) // Check has seen it
			set(p, n)
		},
	}
}

// Boolean is true or false, in any case; empty is false.
func Boolean[P any](name string, set func(*P, bool)) Key[P] {
	return Key[P]{
		Name:    name,
		Allowed: "true, false",
		Default: "false",
		Check:   IsBoolean,
		Set: func(p *P, v string) {
			on, _ := strconv.ParseBool(strings.ToLower(v)) // Check has seen it
			set(p, on)
		},
	}
}

// ResourceID is the ID of a resource at Azure; empty counts as not given.
func ResourceID[P any](name string, set func(*P, string)) Key[P] {
	return Key[P]{
		Name:    name,
		Allowed: "a resource ID that starts with /subscriptions/",
		Set:     set,
		Check:   func(v string) bool { return v == "" || strings.HasPrefix(strings.ToLower(v), "/subscriptions/") },
	}
}

// IsInteger checks for a whole number from low to high.
func IsInteger(low, high int64) func(string) bool {
	return func(v string) bool {
		n, err := strconv.ParseInt(v, 10, 64)
		return err == nil && n >= low && n <= high
	}
}

// IsBoolean checks for true, false or nothing. It also takes 1, 0, t and f, as the V1 driver does
// where it parses a boolean at all.
func IsBoolean(v string) bool {
	_, err := strconv.ParseBool(strings.ToLower(v))
	return v == "" || err == nil
}

// AnyCase checks for one of the values, which are in lower case, without regard to case.
func AnyCase(values []string) func(string) bool {
	return func(v string) bool { return v == "" || slices.Contains(values, strings.ToLower(v)) }
}

// IsLocation checks for a region's name, as in "eastus" or "East US".
func IsLocation(v string) bool {
	return !strings.ContainsFunc(v, func(r rune) bool { return !isAlphanumeric(r) && r != ' ' })
}

// IsResourceGroup checks for a valid name of a resource group; an empty text means the default.
// Source: https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules
func IsResourceGroup(v string) bool { return v == "" || characters(v) <= 90 && resourceid.IsGroup(v) }

// IsSubscription checks for a valid subscription ID; an empty text means the default.
func IsSubscription(v string) bool { return v == "" || resourceid.IsSubscription(v) }

// Location returns a region's name in the spelling in which regions are compared: "East US" is
// "eastus".
func Location(v string) string { return strings.ToLower(strings.ReplaceAll(v, " ", "")) }

// Fault describes a value that is not allowed.
func Fault(name string, value any, allowed string) string {
	return fmt.Sprintf("parameter %s: value %q is not allowed; allowed: %s", name, fmt.Sprint(value), allowed)
}

// Invalid returns faults as one InvalidArgument, or nil if there are none.
func Invalid(faults []string) error {
	if len(faults) == 0 {
		return nil
	}
	return provisioner.Errorf(provisioner.InvalidArgument, "%s", strings.Join(faults, "; "))
}
