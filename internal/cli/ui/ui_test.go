package ui_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
	"github.com/azuredisk-csi/azuredisk/internal/cli/ui"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/objects"
)

// source is one whose records the test changes.
type source struct {
	mu      sync.Mutex
	records explain.Records
	changed chan struct{}
}

func (s *source) Records() explain.Records {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.records
}

func (s *source) Changed() <-chan struct{} { return s.changed }

func (s *source) add(v *apiv1.AzVolume) {
	s.mu.Lock()
	s.records.Volumes = append(s.records.Volumes, v)
	s.mu.Unlock()
	s.changed <- struct{}{}
}

func volume(claim string) *apiv1.AzVolume {
	return objects.NewVolume(func(v *apiv1.AzVolume) { v.Name, v.Spec.ClaimRef = claim, objects.Claim(claim) })
}

// start serves a page, and returns its address with the token, and the node that each action ran for.
func start(t *testing.T, s *source) (address *url.URL, token string, ran chan string) {
	t.Helper()
	ran = make(chan string, 1)
	page := ui.New(ui.Options{
		Clock:  clock.RealClock{},
		Source: s,
		Why: func(_ context.Context, subject explain.Subject) (explain.Report, error) {
			return explain.Explain(explain.Facts{Subject: subject}), nil
		},
		Actions: []ui.Action{
			{Name: "cut", Run: func(_ context.Context, node string) error { ran <- node; return nil }},
			{Name: "fail", Run: func(context.Context, string) error { return errors.New("no power switch") }},
		},
	})
	go page.Run(t.Context())
	server := httptest.NewServer(page)
	t.Cleanup(server.Close)
	address, err := url.Parse(page.URL(server.Listener.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	return address, address.Query().Get("token"), ran
}

func TestRequestsThatAreAnswered(t *testing.T) {
	t.Parallel()
	s := &source{changed: make(chan struct{}), records: explain.Records{
		Volumes: []*apiv1.AzVolume{volume("shop/a"), volume("bank/b")},
		Nodes:   []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}},
	}}
	address, token, ran := start(t, s)
	for name, test := range map[string]struct {
		method, path, token string
		change              func(*http.Request)
		status              int
		want                string
	}{
		"the page":           {"GET", "/", "", nil, 200, "<title>Azure Disk CSI Driver</title>"},
		"its script":         {"GET", "/page.js", "", nil, 200, "EventSource"},
		"without the token":  {"GET", "/overview", "", nil, 403, "the token is missing"},
		"the stream without": {"GET", "/events", "", nil, 403, "the token is missing"},
		"an answer without":  {"GET", "/why?kind=PersistentVolume&name=x", "", nil, 403, "the token is missing"},
		"the names without":  {"GET", "/actions", "", nil, 403, "the token is missing"},
		"the page for a name that resolves here": {"GET", "/", token, func(r *http.Request) { r.Host = "evil.example" }, 403,
			"not a loopback address"},
		"with another token": {"GET", "/overview", "x" + token, nil, 403, "the token is missing"},
		"a name that resolves here": {"GET", "/overview", token, func(r *http.Request) { r.Host = "evil.example" }, 403,
			"not a loopback address"},
		"the overview": {"GET", "/overview", token, nil, 200, `"claim":"b"`},
		"the overview of one": {"GET", "/overview?namespace=shop", token, nil, 200,
			`"namespaces":[{"name":"bank","volumes":1}`},
		"an answer": {"GET", "/why?kind=PersistentVolume&name=x", token, nil, 200,
			"is not readable with these rights"},
		"the actions":             {"GET", "/actions", token, nil, 200, `"items":[{"name":"cut"},{"name":"fail"}]`},
		"an action":               {"POST", "/actions?action=cut&node=n1", token, nil, 200, ""},
		"an action without token": {"POST", "/actions?action=cut&node=n1", "", nil, 403, "token"},
		"an action for no node":   {"POST", "/actions?action=cut&node=--help", token, nil, 404, "no such node"},
		"an action that is not":   {"POST", "/actions?action=burn&node=n1", token, nil, 404, "no such action"},
		"an action that fails":    {"POST", "/actions?action=fail&node=n1", token, nil, 502, "no power switch"},
		"an action of another page": {"POST", "/actions?action=cut&node=n1", token, func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", "cross-site")
		}, 403, "cross-origin"},
		"a change of a record": {"PUT", "/overview", token, nil, 405, "Method Not Allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			request, err := http.NewRequestWithContext(t.Context(), test.method, "http://"+address.Host+test.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			query := request.URL.Query()
			query.Set("token", test.token)
			request.URL.RawQuery = query.Encode()
			if test.change != nil {
				test.change(request)
			}
			answer, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			body, err := io.ReadAll(answer.Body)
			if err != nil || answer.StatusCode != test.status || !strings.Contains(string(body), test.want) {
				t.Errorf("got %d, %v and %s, want %d and %q", answer.StatusCode, err, body, test.status, test.want)
			}
			if strings.Contains(string(body), `"claim":"b"`) && strings.Contains(test.path, "namespace=shop") {
				t.Errorf("got a volume of another namespace: %s", body)
			}
			if test.status == 200 && !strings.Contains(answer.Header.Get("Content-Security-Policy"), "default-src 'none'") {
				t.Errorf("got the policy %q", answer.Header.Get("Content-Security-Policy"))
			}
		})
	}
	if node := <-ran; node != "n1" || len(ran) > 0 {
		t.Errorf("the action ran for %q and %d more, want n1 alone", node, len(ran))
	}
}

// A browser sends the cookies of a host to each of its ports, and other users may serve at those.
func TestABrowserGivesTheTokenToNoOtherPort(t *testing.T) {
	t.Parallel()
	address, token, _ := start(t, &source{changed: make(chan struct{})})
	seen := make(chan http.Header, 1)
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header }))
	t.Cleanup(other.Close)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	for _, url := range []string{address.String(), "http://" + address.Host + "/overview?token=" + token, other.URL} {
		answer, err := browser.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			t.Errorf("GET %s: got %s, want 200", url, answer.Status)
		}
	}
	if got := (<-seen)["Cookie"]; len(got) > 0 {
		t.Errorf("another port of the host got the cookies %q, want none", got)
	}
}

func TestEachChangeReachesTheOpenPages(t *testing.T) {
	t.Parallel()
	s := &source{changed: make(chan struct{})}
	address, token, _ := start(t, s)
	var pages []*bufio.Scanner
	for range 2 {
		answer, err := http.Get("http://" + address.Host + "/events?namespace=shop&token=" + token)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = answer.Body.Close() })
		pages = append(pages, bufio.NewScanner(answer.Body))
	}
	for n := range 3 {
		for _, page := range pages {
			if got := volumesOfNextEvent(t, page); got != n {
				t.Errorf("got %d volumes, want %d", got, n)
			}
		}
		if n < 2 {
			s.add(volume("shop/" + string(rune('a'+n))))
		}
	}
}

func volumesOfNextEvent(t *testing.T, page *bufio.Scanner) int {
	t.Helper()
	for page.Scan() {
		if data, ok := strings.CutPrefix(page.Text(), "data: "); ok {
			var o explain.Overview
			if err := json.Unmarshal([]byte(data), &o); err != nil {
				t.Fatal(err)
			}
			return len(o.Volumes)
		}
	}
	t.Fatalf("the stream ended: %v", page.Err())
	return 0
}
