package nodeloss

import (
	"math"
	"testing"
	"time"

	"github.com/azuredisk-csi/azuredisk/playground/recorder"
	"github.com/azuredisk-csi/azuredisk/playground/scenario"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/observer"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// after is a moment some seconds after noon.
func after(seconds float64) time.Time {
	return noon.Add(time.Duration(math.Round(seconds*1000)) * time.Millisecond)
}

func TestTheEndOfAWriterThatIsCutOffIsReadFromItsOutcomes(t *testing.T) {
	t.Parallel()
	durable := func(from, to float64, n int64) recorder.Outcome {
		return recorder.Outcome{Durable: true, Attempts: n, From: after(from), Ended: after(from), To: after(to)}
	}
	failed := func(from, to float64, n int64) recorder.Outcome {
		return recorder.Outcome{
			Attempts: n,
			From:     after(from),
			Ended:    after(from + 0.1),
			To:       after(to),
			Error:    "EIO",
		}
	}
	for _, c := range []struct {
		name     string
		outcomes []recorder.Outcome
		next     float64
		want     oldWriter
		stopped  bool
	}{
		{"its writes fail before the new one begins",
			[]recorder.Outcome{durable(-2, -1, 80), durable(-1, 1, 160), durable(1, 9, 640), failed(9, 9.1, 1),
				failed(9.2, 20, 900)}, 12,
			oldWriter{LastDurable: after(9), Failed: after(9.1), Error: "EIO", Attempts: 901, WhileCut: 800}, true},
		{"it fails too late", []recorder.Outcome{durable(0, 9, 640), failed(9, 20, 900)}, 8,
			oldWriter{LastDurable: after(9), Failed: after(9.1), Error: "EIO", Attempts: 900, WhileCut: 640}, false},
		{"it never fails", []recorder.Outcome{durable(0, 9, 640)}, 12, oldWriter{LastDurable: after(9), WhileCut: 640}, false},
		{"a failure passes", []recorder.Outcome{durable(0, 5, 400), failed(5, 6, 80), durable(6, 13, 400)}, 12,
			oldWriter{LastDurable: after(13), WhileCut: 800}, false},
		{"it noted nothing", nil, 12, oldWriter{}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := readOldWriter(c.outcomes, noon)
			if got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			if got.stoppedBefore(after(c.next)) != c.stopped {
				t.Errorf("stopped before: got %t, want %t", !c.stopped, c.stopped)
			}
		})
	}
}

func TestStaleMountsAreThoseOfThePodAndOfItsVolume(t *testing.T) {
	t.Parallel()
	mounts := "tmpfs /var/lib/kubelet/pods/other/volumes tmpfs rw 0 0\n" +
		"/dev/loop7 /var/lib/kubelet/plugins/kubernetes.io/csi/disk.csi.azure.com/abc/globalmount ext4 rw 0 0\n" +
		"/dev/loop3 /var/lib/kubelet/pods/old/volumes/kubernetes.io~csi/pvc-1/mount ext4 rw 0 0\n" +
		"tmpfs /var/lib/kubelet/pods/old/volumes/kubernetes.io~projected/token tmpfs rw 0 0\nodd\n"
	if got := staleMounts(mounts, scenario.Failover{Old: "old", Volume: observer.Volume{PV: "pvc-1"}}); len(got) != 2 {
		t.Errorf("got the stale mounts %q, want those of the pod and of its volume", got)
	}
}
