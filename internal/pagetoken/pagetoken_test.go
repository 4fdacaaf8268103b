package pagetoken_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/azuredisk-csi/azuredisk/internal/pagetoken"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func TestANegativePageIsRefused(t *testing.T) {
	if _, _, err := pagetoken.Cut(pagetoken.Page{
		Of:         "volumes",
		MaxEntries: -1,
	}, []string{"a"}, func(s string) string { return s }); !errors.Is(err, provisioner.InvalidArgument) {
		t.Errorf("got %v, want InvalidArgument", err)
	}
}

func TestDecodeTellsWhatIsWrongWithAToken(t *testing.T) {
	raw := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	tests := map[string]struct{ token, reason string }{
		"a number, as the V1 driver's": {"3", "not a token of this driver"},
		"no base64":                    {"!!", "not a token of this driver"},
		"base64 with a line break": {raw("1volumes\x00pvc-1")[:4] + "\n" + raw("1volumes\x00pvc-1")[4:],
			"not a token of this driver"},
		"a later version":                  {raw("2volumes\x00pvc-1"), "of another version of this driver"},
		"no separator":                     {raw("1volumes"), "not a token of this driver"},
		"no key":                           {raw("1volumes\x00"), "not a token of this driver"},
		"a token of another kind of lists": {pagetoken.Encode("snapshots", "s-1"), "made for another list"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := pagetoken.Decode("volumes", test.token)
			if !errors.Is(err, provisioner.Conflict) || !strings.Contains(err.Error(), test.reason) {
				t.Errorf("error = %v, want the reason %q", err, test.reason)
			}
		})
	}
}

// TestPagesHoldWhatStays lists while items come and go between the pages.
func TestPagesHoldWhatStays(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	for range 200 {
		var stay, others []string
		for i := range random.Intn(30) {
			stay = append(stay, fmt.Sprintf("%04d-stays-%d", random.Intn(10000), i))
		}
		for i := range random.Intn(30) {
			others = append(others, fmt.Sprintf("%04d-comes-and-goes-%d", random.Intn(10000), i))
		}
		var seen []string
		page := pagetoken.Page{Of: "volumes", MaxEntries: int32(1 + random.Intn(5))}
		for {
			now := slices.Clone(stay)
			for _, o := range others {
				if random.Intn(2) == 0 {
					now = append(now, o)
				}
			}
			random.Shuffle(len(now), func(i, j int) { now[i], now[j] = now[j], now[i] })
			items, next, err := pagetoken.Cut(page, now, func(s string) string { return s })
			if err != nil {
				t.Fatal(err)
			}
			if len(items) > int(page.MaxEntries) {
				t.Fatalf("%d items on a page of at most %d", len(items), page.MaxEntries)
			}
			seen = append(seen, items...)
			if next == "" {
				break
			}
			page.StartingToken = next
		}
		if !slices.IsSorted(seen) || len(slices.Compact(slices.Clone(seen))) != len(seen) {
			t.Fatalf("an item was listed twice, or out of order: %v", seen)
		}
		for _, s := range stay {
			if !slices.Contains(seen, s) {
				t.Fatalf("%s was there all the time and not listed", s)
			}
		}
	}
}

func TestAPageThatHoldsTheRestHasNoNext(t *testing.T) {
	identity := func(s string) string { return s }
	for _, most := range []int32{0, 2, 3} {
		items, next, err := pagetoken.Cut(pagetoken.Page{Of: "volumes", MaxEntries: most}, []string{"b", "a"}, identity)
		if err != nil || next != "" || !slices.Equal(items, []string{"a", "b"}) {
			t.Errorf("at most %d: %v, next %q, %v", most, items, next, err)
		}
	}
}

func TestAPageHoldsWhatOneAnswerCan(t *testing.T) {
	all := make([]string, 4500)
	for i := range all {
		all[i] = fmt.Sprintf("%05d", i)
	}
	for _, asked := range []int32{0, 4000} {
		page, pages, seen := pagetoken.Page{Of: "volumes", MaxEntries: asked}, 0, 0
		for {
			items, next, err := pagetoken.Cut(page, all, func(s string) string { return s })
			if err != nil {
				t.Fatal(err)
			}
			pages, seen = pages+1, seen+len(items)
			if next == "" {
				break
			}
			page.StartingToken = next
		}
		if pages != 3 || seen != len(all) {
			t.Errorf("asked for %d: %d items on %d pages", asked, seen, pages)
		}
	}
}

// FuzzDecode holds that no text makes Decode panic, that what it takes is the one token of its key,
// and that all else is a Conflict.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{"", "3", "!!", pagetoken.Encode("volumes", "pvc-1"), pagetoken.Encode("snapshots", "s"),
		"MXZvbHVtZXM", "MXZvbHVtZXMA\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, token string) {
		after, err := pagetoken.Decode("volumes", token)
		switch {
		case err != nil && !errors.Is(err, provisioner.Conflict):
			t.Fatalf("error %v is no Conflict", err)
		case err == nil && token != "" && pagetoken.Encode("volumes", after) != token:
			t.Fatalf("token %q of key %q is not the one that is made for it", token, after)
		}
	})
}

// FuzzEncode checks that Decode returns every encoded key.
func FuzzEncode(f *testing.F) {
	f.Add("pvc-1")
	f.Add("a\x00b")
	f.Fuzz(func(t *testing.T, key string) {
		if key == "" {
			return
		}
		if after, err := pagetoken.Decode("volumes", pagetoken.Encode("volumes", key)); err != nil || after != key {
			t.Fatalf("Decode of the encoded key %q: got %q, %v", key, after, err)
		}
	})
}
