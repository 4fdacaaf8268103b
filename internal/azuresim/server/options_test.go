package server

import (
	"fmt"
	"strings"
	"testing"
)

func TestDefaultsAreGood(t *testing.T) {
	if _, err := Defaults().resolve(); err != nil {
		t.Error(err)
	}
}

func TestEveryFaultOfTheOptionsIsNamed(t *testing.T) {
	o := Options{
		Listen:        "nowhere",
		AdminListen:   "nowhere",
		Latency:       "/does/not/exist",
		Throttle:      "maybe",
		Auth:          "perhaps",
		Clients:       []string{"half"},
		Applications:  []string{"a=/does/not/exist"},
		Roles:         []string{"half"},
		Subscriptions: []string{"a/b"},
		Location:      "atlantis",
		PageSize:      0,
		Quotas:        []string{"PremiumDiskCount=many"},
		TLSCert:       "only.pem",
		LogLevel:      "loud",
	}
	_, err := o.resolve()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, flag := range []string{"listen", "admin-listen", "state-dir", "reservations", "latency", "throttle", "auth", "client",
		"application", "role", "token-lifetime", "subscription", "location", "page-size", "quota", "tls-cert", "log-level"} {
		if !strings.Contains(err.Error(), "--"+flag+":") {
			t.Errorf("got %[2]v, want an error that names --%[1]s", flag, err)
		}
	}
}

func TestWithASeedSomeDisksForgetReservationsAtADetach(t *testing.T) {
	for name, test := range map[string]struct {
		reservations string
		loses, keeps bool
	}{
		"keep": {"keep", false, true},
		"lose": {"lose", true, false},
		"seed": {"seed", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := settings{Options: Options{Seed: 1, Reservations: test.reservations}}
			loses, keeps := false, false
			for i := range 20 {
				if uid := fmt.Sprint("disk-", i); s.losesReservations(uid) {
					loses = true
				} else {
					keeps = true
				}
			}
			if loses != test.loses || keeps != test.keeps {
				t.Errorf("got disks that lose them %t and that keep them %t, want %t and %t", loses, keeps, test.loses,
					test.keeps)
			}
		})
	}
}
