package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// serve runs the command until the test ends, and returns the URL that it prints.
func (l *lab) serve(t *testing.T, args ...string) string {
	t.Helper()
	out, in := io.Pipe()
	root := newCommand(genericclioptions.NewConfigFlags(true))
	root.SetOut(in)
	root.SetArgs(append([]string{"ui", "--kubeconfig", l.kubeconfig, "--driver-namespace", l.namespace}, args...))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		err := root.ExecuteContext(ctx)
		_ = in.CloseWithError(err)
		ended <- err
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the command ended with %v", err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the command printed no URL: %v", err)
	}
	return strings.TrimSpace(line)
}

// browser is a page in a browser.
type browser struct {
	*testing.T
	ctx context.Context //nolint:containedctx // chromedp keeps the page in it
}

func open(t *testing.T, url string) browser {
	t.Helper()
	bounded, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	ctx, cancel := chromedp.NewContext(bounded, chromedp.WithAllocatorOptions(chromedp.NoSandbox,
		chromedp.Flag("disable-quic", true), chromedp.WindowSize(1280, 1000)))
	t.Cleanup(cancel)
	b := browser{t, ctx}
	b.do(chromedp.Navigate(url))
	return b
}

func (b browser) do(steps ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.Fatal(err)
	}
}

// until waits until an expression is true in the page.
func (b browser) until(expression string) {
	b.Helper()
	for {
		ok, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](expression))
		if ok {
			return
		}
		if err != nil {
			b.Fatalf("%s is not true: %v", expression, err)
		}
		time.Sleep(5 * time.Millisecond) // between two looks
	}
}

// shows waits until a part of the page shows a text.
func (b browser) shows(part, text string) {
	b.Helper()
	b.until(fmt.Sprintf("document.querySelector(%q)?.innerText.includes(%q) === true", part, text))
}

// TestThePageInABrowser looks at a real page above a real API server.
func TestThePageInABrowser(t *testing.T) {
	l := newLab(t)
	b := open(t, l.serve(t, "-n", l.namespace, "--node-action", "stop=/bin/ls /none/{node}"))

	b.shows("#live", "live")
	b.shows("article[aria-label=a]", "6 of 7 disk slots free")
	b.shows("article[aria-label=a] .disk.primary", "data")
	b.shows("#volumes tbody tr", "cart-old: Running, not ready on a")
	b.shows("#attention", "Nothing.")
	b.shows("#failovers", "None")

	t.Run("a change is shown", func(t *testing.T) {
		b := browser{t, b.ctx}
		var v apiv1.AzVolume
		const subscription = "00000000-0000-0000-0000-000000000001"
		key := client.ObjectKey{Namespace: l.namespace, Name: apiv1.VolumeName(subscription, "g", "vol")}
		must(t, l.kube.Get(t.Context(), key, &v))
		v.Status.Primary.State, v.Status.Primary.Cause = apiv1.OwnershipReleasing, apiv1.CauseUnpublished
		began := time.Now()
		must(t, l.kube.Status().Update(t.Context(), &v))
		b.shows("#moves", "data node a gives it up")
		t.Logf("after %s", time.Since(began))
	})
	t.Run("a failover is shown", func(t *testing.T) {
		b := browser{t, b.ctx}
		now := metav1.Now()
		l.put(t, &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: l.namespace},
			InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "a"},
			Source:         corev1.EventSource{Component: "azuredisk-failover"},
			Reason:         apiv1.ReasonFailoverStarted, Message: "node a is silent", FirstTimestamp: now, LastTimestamp: now,
		})
		b.shows("#failovers", "node a is silent")
		b.shows("#failovers", "+0 s")
	})
	t.Run("by the keyboard", func(t *testing.T) {
		b := browser{t, b.ctx}
		b.do(chromedp.KeyEvent("/"))
		b.until("document.activeElement.id === 'name'")
		b.do(chromedp.KeyEvent("zz"))
		b.shows("#volumes", "No volume")
		b.do(chromedp.KeyEvent(kb.Backspace), chromedp.KeyEvent(kb.Backspace))
		b.shows("#volumes tbody tr", "data")
		for range 20 {
			focused, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("document.activeElement.dataset.key || ''"))
			must(t, err)
			if focused == "why Node /a" {
				break
			}
			b.do(chromedp.KeyEvent(kb.Tab))
		}
		b.do(chromedp.KeyEvent(kb.Enter))
		b.shows("#answer", "Node a is healthy")
		b.do(chromedp.KeyEvent(kb.Escape))
		b.until("!document.getElementById('answer').open && document.activeElement.dataset.key === 'why Node /a'")
	})
	t.Run("a command that fails says so", func(t *testing.T) {
		b := browser{t, b.ctx}
		b.do(chromedp.Click("article[aria-label=b] button[aria-label='stop b']"))
		b.shows("#answer", "/none/b")
	})
	t.Run("without its token", func(t *testing.T) {
		b := browser{t, b.ctx}
		b.do(chromedp.Navigate(strings.Split(l.serve(t), "?")[0]))
		b.shows("body", "the token is missing")
	})
}

func TestBadFlagsOfThePage(t *testing.T) {
	l := newLab(t)
	for _, test := range []struct{ flag, want string }{
		{"--listen=0.0.0.0:8080", "expected a loopback address and a port"},
		{"--listen=8080", "expected a loopback address and a port"},
		{"--node-action=cut", "expected NAME=PROGRAM and its arguments"},
		{"--node-action=cut=", "expected NAME=PROGRAM and its arguments"},
	} {
		if text, code := l.run(t, "ui", test.flag); code != 64 || !strings.Contains(text, test.want) {
			t.Errorf("%s: got %d and %q, want 64 and %q", test.flag, code, text, test.want)
		}
	}
}
