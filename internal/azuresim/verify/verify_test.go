package verify_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/azuredisk-csi/azuredisk/azuresim/simtest"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/latency"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/rules"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/server"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/verify"
)

const subscription = "00000000-0000-0000-0000-000000000001"

// start runs a simulator with Azure's quotas, where an attach takes long enough that something can
// be done during it.
func start(t *testing.T) verify.Options {
	t.Helper()
	profile := latency.Fast()
	profile.Pauses = map[string]latency.Pause{"disk.create": {Accepted: latency.Duration(2 * time.Second)}}
	profile.Steps[latency.Attach] = latency.Range{
		Min: latency.Duration(300 * time.Millisecond),
		Max: latency.Duration(300 * time.Millisecond),
	}
	running := simtest.Start(t, func(o *server.Options) { o.Throttle = "on" })
	if status := running.Admin(t, http.MethodPut, "/admin/latency", profile, nil); status >= 300 {
		t.Fatalf("the profile was answered with %d", status)
	}
	return verify.Options{
		Subscription: subscription,
		Location:     "eastus",
		Endpoint:     running.URL,
		Subnet:       "/subnet",
		MaxCost:      1,
		Credential:   verify.Anyone{},
		Clock:        clock.RealClock{},
		Poll:         2 * time.Millisecond,
		Owner:        "here/1",
		Alive:        func(string) bool { return true },
	}
}

// groups are the resource groups of runs.
func groups(t *testing.T, o verify.Options) (names []string) {
	t.Helper()
	for _, line := range strings.Split(get(t, o.Endpoint+"/subscriptions/"+subscription+"/resourceGroups?api-version=2021-04-01"),
		`"name":"`) {
		if name, _, _ := strings.Cut(line, `"`); strings.HasPrefix(name, "azuresim-verify-") {
			names = append(names, name)
		}
	}
	return names
}

func get(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestAzuresimFollowsItsOwnRules(t *testing.T) {
	o := start(t)
	o.Rules = verify.Played() // and no questions
	var out bytes.Buffer
	differences, err := verify.Run(t.Context(), o, &out)
	if err != nil || len(differences) > 0 {
		t.Errorf("got %v, %v, want no difference\n%s", differences, err, &out)
	}
	if left := groups(t, o); len(left) > 0 {
		t.Errorf("resource groups after the run: %v, want none", left)
	}
	for _, name := range verify.Played() {
		if !slices.ContainsFunc(rules.All, func(r rules.Rule) bool { return r.ID == name }) {
			t.Errorf("%s is played, and is no rule", name)
		}
	}
}

func TestWhatIsNotKnownIsAskedAndShown(t *testing.T) {
	o := start(t)
	o.Poll = 60 * time.Millisecond // within the quota of reads of a VM
	o.Rules = []string{"ask-attach", "ask-detach", "ask-forced-detach", "ask-concurrent-attach", "ask-premium-v2"}
	var out bytes.Buffer
	if differences, err := verify.Run(t.Context(), o, &out); err != nil || len(differences) > 0 {
		t.Fatalf("got %v, %v, want no difference\n%s", differences, err, &out)
	}
	for question, want := range map[string][]string{
		"ask-attach": {"202", "Azure-AsyncOperation of", "left: Microsoft.Compute/UpdateVMResource",
			"VM Succeeded, the disk is listed"},
		"ask-detach":            {"VM Succeeded, the disk is not listed, disk Unattached", "output: true"},
		"ask-forced-detach":     {"VM Succeeded, the disk is not listed"},
		"ask-concurrent-attach": {": 202"},
		"ask-premium-v2":        {"400"},
	} {
		line := ""
		for _, l := range strings.Split(out.String(), "\n") {
			if strings.HasPrefix(l, "SEEN    "+question+" ") {
				line = l
			}
		}
		for _, part := range want {
			if !strings.Contains(line, part) {
				t.Errorf("%s: got %q, want %q in it", question, line, part)
			}
		}
	}
}

// broken is a platform that breaks rules on purpose.
type broken func(resp *http.Response, body string) string

// Do implements policy.Transporter.
func (b broken) Do(req *http.Request) (*http.Response, error) {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	changed := b(resp, string(raw))
	resp.Body, resp.ContentLength = io.NopCloser(strings.NewReader(changed)), int64(len(changed))
	resp.Header.Del("Content-Length")
	return resp, err
}

func replace(pairs ...string) broken {
	return func(_ *http.Response, body string) string { return strings.NewReplacer(pairs...).Replace(body) }
}

func TestBrokenRulesAreFound(t *testing.T) {
	for name, tc := range map[string]struct {
		how   broken
		rules []string
	}{
		"other codes": {replace(`"code":"`, `"code":"Not`), []string{
			"resource-unknown", "group-unknown", "subscription-malformed", "api-version-missing", "api-version",
			"api-version-groups", "body", "member-unknown",
			"location-missing", "location-unknown", "parameter-missing", "disk-name", "disk-sku", "disk-zones", "disk-shares",
			"disk-bursting", "disk-tier",
			"disk-performance", "disk-network", "disk-encryption-set", "disk-access", "copy-source", "disk-shrink",
			"disk-zone-fixed", "disk-location-fixed",
			"disk-source-fixed", "vm-size", "attach-missing-disk", "attach-nothing", "attach-owned", "attach-lun", "attach-fixed",
			"attach-caching", "attach-zone",
			"detach-absent", "disk-delete-attached", "disk-shares-change", "disk-grow-attached", "vm-etag", "vm-fixed",
		}},
		"another status": {func(resp *http.Response, body string) string {
			if resp.StatusCode == http.StatusBadRequest {
				resp.StatusCode = http.StatusUnprocessableEntity
			}
			return body
		}, []string{"disk-name", "attach-caching"}},
		"no Retry-After": {func(resp *http.Response, body string) string {
			resp.Header.Del("Retry-After")
			return body
		}, []string{"retry-after-create"}},
		"the quotas of before": {func(resp *http.Response, body string) string {
			resp.Header.Set("x-ms-ratelimit-remaining-subscription-writes", "1199")
			return body
		}, []string{"quota-manager"}},
		"no Location": {func(resp *http.Response, body string) string {
			resp.Header.Del("Location")
			return body
		}, []string{"operation"}},
		"other properties": {replace(`"diskIOPSReadWrite"`, `"x"`, `"tier":"P1"`, `"tier":"P4"`, `"diskState":"Unattached"`,
			`"diskState":"Attaching"`),
			[]string{"disk-performance-shown", "disk-tier-shown", "disk-attaching-state"}},
		"no deletion during an attach": {func(resp *http.Response, body string) string {
			if resp.Request.Method == http.MethodDelete && strings.Contains(resp.Request.URL.Path, "/disks/deleted") {
				resp.StatusCode = http.StatusConflict
				return `{"error":{"code":"OperationNotAllowed"}}`
			}
			return body
		}, []string{"disk-delete-attaching"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := start(t)
			o.Transport, o.Rules = tc.how, tc.rules
			var out bytes.Buffer
			differences, err := verify.Run(t.Context(), o, &out)
			if err != nil {
				t.Fatalf("%v\n%s", err, &out)
			}
			for _, rule := range tc.rules {
				if !slices.ContainsFunc(differences, func(d verify.Difference) bool { return d.Rule == rule }) {
					t.Errorf("rule %s is broken and not reported\n%s", rule, &out)
				}
			}
		})
	}
}

// stopped ends a context at the first call about a VM.
type stopped struct{ stop context.CancelFunc }

// Do implements policy.Transporter.
func (s stopped) Do(req *http.Request) (*http.Response, error) {
	if strings.Contains(req.URL.Path, "/virtualMachines/") && req.Method == http.MethodPost {
		s.stop()
	}
	return http.DefaultClient.Do(req)
}

func TestARunThatIsInterruptedCleansUp(t *testing.T) {
	o := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	o.Transport, o.Rules = stopped{cancel}, []string{"attach-owned"}
	var out bytes.Buffer
	if _, err := verify.Run(ctx, o, &out); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled\n%s", err, &out)
	}
	if left := groups(t, o); len(left) > 0 {
		t.Errorf("resource groups after the run: %v, want none", left)
	}
}

// left makes what a run that was killed leaves behind.
func left(t *testing.T, o verify.Options, owner string, expires time.Time) {
	t.Helper()
	group := fmt.Sprintf("/subscriptions/%s/resourceGroups/azuresim-verify-%d", subscription, expires.UnixNano())
	put(t, o.Endpoint+group+"?api-version=2021-04-01",
		fmt.Sprintf(`{"location":"eastus","tags":{"azuresim-verify":%q,"azuresim-verify-expires":%q}}`, owner,
			expires.UTC().Format(time.RFC3339)))
	put(t, o.Endpoint+group+"/providers/Microsoft.Compute/disks/left?api-version=2025-01-02",
		`{"location":"eastus","properties":{"creationData":{"createOption":"Empty"},"diskSizeGB":4}}`)
}

func put(t *testing.T, url, body string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPut, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode >= 300 {
		t.Fatalf("PUT %s: %v, %v", url, resp, err)
	}
	_ = resp.Body.Close()
}

func TestWhatAKilledRunLeftBehindIsRemoved(t *testing.T) {
	o := start(t)
	o.Rules = []string{"resource-unknown"}
	killed := exec.Command("true")
	if err := killed.Run(); err != nil {
		t.Fatal(err)
	}
	left(t, o, fmt.Sprintf("here/%d", killed.Process.Pid), time.Now().Add(time.Hour))
	left(t, o, "elsewhere/1", time.Now().Add(-time.Minute))
	left(t, o, "elsewhere/2", time.Now().Add(2*time.Hour))
	o.Alive = func(owner string) bool { return verify.Alive("here", owner) }
	var out bytes.Buffer
	if _, err := verify.Run(t.Context(), o, &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	if have := groups(t, o); len(have) != 1 {
		t.Errorf("resource groups: %v, want only that of the run elsewhere that goes on\n%s", have, &out)
	}
}

func TestTheCostIsLimited(t *testing.T) {
	o := start(t)
	o.MaxCost = 0.10
	if _, err := verify.Run(t.Context(), o, io.Discard); err == nil || !strings.Contains(err.Error(), "too low") {
		t.Errorf("got %v, want that the limit is too low", err)
	}
	if made := groups(t, o); len(made) > 0 {
		t.Errorf("resource groups: %v, want none", made)
	}
}
