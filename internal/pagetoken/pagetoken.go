// Package pagetoken divides lists into pages for the CSI servers. A token has the key after which
// the list continues, not the number of items before it. An item that exists all the time is
// therefore listed exactly once, whatever is created or deleted between two pages, also by another
// replica of the server or after a restart.
package pagetoken

import (
	"cmp"
	"encoding/base64"
	"slices"
	"strings"

	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// version of the token's layout. A token of another version is bad, and the caller starts the list
// again.
const version = "1"

// Encode makes the token with which a list of the kind "of" continues after a key.
func Encode(of, after string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(version + of + "\x00" + after))
}

// Decode returns the key after which the list continues; "" for an empty token, at the start of the
// list. Errors: Conflict for a token that this package did not make, or made for another list. CSI
// requires ABORTED for it, which tells the caller to start again without a token.
func Decode(of, token string) (string, error) {
	if token == "" {
		return "", nil
	}
	bad := func(reason string) (string, error) {
		return "", provisioner.Errorf(provisioner.Conflict,
			"cannot continue at starting token %.80q of %s: %s; start again without a token", token, of, reason)
	}
	// Line breaks are not skipped: each key has one token.
	if strings.ContainsAny(token, "\r\n") {
		return bad("not a token of this driver")
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil {
		return bad("not a token of this driver")
	}
	rest, ok := strings.CutPrefix(string(raw), version)
	if !ok {
		return bad("of another version of this driver")
	}
	kind, after, ok := strings.Cut(rest, "\x00")
	switch {
	case !ok || after == "":
		return bad("not a token of this driver")
	case kind != of:
		return bad("made for another list")
	}
	return after, nil
}

// Page is the page that a list call requests.
type Page struct {
	// Of is the kind of the list, as in "volumes"; for a list with a filter it names the filter
	// too.
	Of string
	// StartingToken is where the page starts; "" for the start of the list.
	StartingToken string
	// MaxEntries limits the page; 0 for as many items as fit in a response.
	MaxEntries int32
}

// most is the largest number of items on a page, even if the caller requests more: gRPC clients
// refuse responses of more than 4 MiB.
const most = 2000

// Cut returns the page's items in the order of their keys, and the token of the next page, "" if
// there is none. Keys must be unique and not empty; items is not changed. Errors: the errors of
// Decode, and InvalidArgument if MaxEntries is negative.
func Cut[T any](page Page, items []T, key func(T) string) (found []T, next string, err error) {
	if page.MaxEntries < 0 {
		return nil, "", provisioner.Errorf(provisioner.InvalidArgument,
			"max entries: value %d is not allowed; allowed: 0 or more", page.MaxEntries)
	}
	after, err := Decode(page.Of, page.StartingToken)
	if err != nil {
		return nil, "", err
	}
	for _, item := range items {
		if key(item) > after {
			found = append(found, item)
		}
	}
	slices.SortFunc(found, func(a, b T) int { return cmp.Compare(key(a), key(b)) })
	n := min(int(page.MaxEntries), most)
	if n == 0 {
		n = most
	}
	if n >= len(found) {
		return found, "", nil
	}
	return found[:n], Encode(page.Of, key(found[n-1])), nil
}
