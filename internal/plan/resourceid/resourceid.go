// Package resourceid checks the resource IDs of Azure and the names in them.
package resourceid

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// IsVM reports whether a text is the resource ID of a VM or of an instance of a scale set, in its
// only spelling except for the case: two texts that differ otherwise are two VMs, at Azure too. A
// trailing slash, an escaped character or a dot segment would be a second name of one VM. It is
// asked for each node whenever one of its volumes is looked at, so it is no regular expression.
func IsVM(id string) bool {
	part := strings.Split(id, "/")
	is := func(i int, name string) bool { return strings.EqualFold(part[i], name) }
	vm := func(i int) bool { return consists(part[i], wordCharacter, ".-") }
	switch {
	case len(part) != 9 && len(part) != 11,
		part[0] != "" || !is(1, "subscriptions") || !is(3, "resourceGroups") || !is(5, "providers") ||
			!is(6, "Microsoft.Compute"),
		!consists(part[2], subscriptionCharacter, "") || !consists(part[4], groupCharacter, "."):
		return false
	case len(part) == 9:
		return is(7, "virtualMachines") && vm(8)
	}
	return is(7, "virtualMachineScaleSets") && vm(8) && is(9, "virtualMachines") && vm(10)
}

// AreNames reports whether a subscription, a resource group and a disk or snapshot in it have names
// that Azure allows. A dot segment or an escaped character would name something else at Azure than
// here.
func AreNames(subscription, group, name string) bool {
	return consists(subscription, subscriptionCharacter, "") && consists(group, groupCharacter, ".") &&
		consists(name, wordCharacter, ".-")
}

// IsGroup reports whether Azure allows the name of a resource group, except for its length.
func IsGroup(name string) bool { return consists(name, groupCharacter, ".") }

// IsSubscription reports whether a text is the ID of a subscription: a GUID.
func IsSubscription(id string) bool {
	part := strings.Split(id, "-")
	lengths := []int{8, 4, 4, 4, 12}
	if len(part) != len(lengths) {
		return false
	}
	for i, length := range lengths {
		if len(part[i]) != length || strings.Trim(part[i], "0123456789abcdefABCDEF") != "" {
			return false
		}
	}
	return true
}

// consists reports whether a name has only allowed characters. Some are not allowed at its
// beginning.
func consists(name string, anywhere func(rune) bool, later string) bool {
	for i, r := range name {
		if !anywhere(r) && (i == 0 || !strings.ContainsRune(later, r)) {
			return false
		}
	}
	return name != ""
}

func wordCharacter(r rune) bool {
	return r == '_' || r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r))
}

func subscriptionCharacter(r rune) bool { return r == '-' || wordCharacter(r) }

func groupCharacter(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsNumber(r) || strings.ContainsRune("_()-", r)
}
