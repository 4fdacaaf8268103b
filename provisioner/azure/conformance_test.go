package azure_test

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/contract"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/latency"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/server"
	"github.com/azuredisk-csi/azuredisk/provisioner/conformance"
)

// asAzure is a simulator whose answers have the form of Azure's, and ask not to poll at once.
func asAzure() *latency.Profile {
	p, real := latency.Fast(), latency.Realistic()
	p.ForeignQuotas, p.SignedURLs, p.UpperCaseGroups = real.ForeignQuotas, real.SignedURLs, real.UpperCaseGroups
	pause := latency.Duration(100 * time.Millisecond)
	p.Pauses = map[string]latency.Pause{
		"vm.disks":    {Accepted: pause, FirstPoll: pause},
		"disk.create": {Accepted: pause},
	}
	return p
}

func TestAzureConformsOverAzuresim(t *testing.T) {
	for name, test := range map[string]struct {
		goalState string
		profile   *latency.Profile
		// attachDetach is on, or for which Azure refuses attachDetachDataDisks.
		attachDetach string
	}{
		"VMs list what they have": {"off", latency.Fast(), "on"},
		"VMs list what they are to have, and answers have the form of Azure's": {"on", asAzure(), "on"},
		"the subscription does not have attachDetachDataDisks":                 {"off", asAzure(), "subscription"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conformance.RunIn(t, func(t *testing.T, run func(*testing.T, conformance.Harness)) {
				inVirtualTime(t, func(t *testing.T) {
					s := startSimulator(t, func(o *server.Options) { o.AttachDetach = test.attachDetach })
					if test.attachDetach != "on" {
						s.assign(t, "driver", listRoles()...)
						s.updates = "vm.update"
					}
					s.call(t, "PUT", "/admin/goal-state?value="+test.goalState, nil, nil)
					s.call(t, "PUT", "/admin/latency", test.profile, nil)
					run(t, s.harness(t))
					var state struct{ Consistent bool }
					s.call(t, "GET", "/admin/check", nil, &state)
					if !state.Consistent {
						t.Error("azuresim is not consistent")
					}
				})
			})
		})
	}
}

// edited sends requests, and replaces a text in the answers.
func (s *simulator) edited(old, new string) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		resp, err := s.HTTP.Do(r)
		if err != nil {
			return nil, err
		}
		raw, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		resp.Body = io.NopCloser(strings.NewReader(strings.Replace(string(raw), old, new, 1)))
		return resp, err
	}
}

func TestTheContractFailsForAnAnswerWithAWrongField(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		s := startSimulator(t)
		id := newDiskSpec("wrong").ID
		s.call(t, "DELETE", "/admin/requests", nil, nil)
		description, err := contract.Describe()
		if err != nil {
			t.Fatal(err)
		}
		var faults []string
		options := s.options(t)
		options.Transport = &contract.Transport{
			Send:        s.edited(`"code"`, `"kode"`),
			Description: description,
			Report:      func(fault string) { faults = append(faults, fault) },
		}
		cloud := s.openWith(t, options)
		_, _ = cloud.Disks().Get(t.Context(), id)
		if u, _ := url.Parse(id); len(faults) == 0 || !strings.Contains(faults[0], u.Path) {
			t.Errorf("an answer with an unknown member: got the faults %q, want one of %s", faults, id)
		}
	})
}
