package problem_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/problem"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func TestTheCauseOfAFailedCall(t *testing.T) {
	t.Parallel()
	held := provisioner.Errorf(provisioner.Conflict, "held").With(provisioner.DeviceHeld)
	busy := provisioner.Errorf(provisioner.Conflict, "busy").With(provisioner.MountBusy)
	damaged := provisioner.Errorf(provisioner.FailedPrecondition, "repair it").With(provisioner.FilesystemDamaged)
	full := &fs.PathError{Op: "open", Path: "/records/v", Err: syscall.ENOSPC}
	other := provisioner.Errorf(provisioner.Unavailable, "umount: exit code 32")
	const says, not = "says nothing else", "says nothing"
	for name, c := range map[string]struct {
		err               error
		mounts, unmounted string
	}{
		"success":                         {nil, says, says},
		"a device that is held":           {held, apiv1.ReasonDeviceHeld, apiv1.ReasonDeviceHeld},
		"that error in another one":       {fmt.Errorf("%w: by a loop", held), apiv1.ReasonDeviceHeld, apiv1.ReasonDeviceHeld},
		"that error as the second of two": {fmt.Errorf("%w; %w", other, held), apiv1.ReasonDeviceHeld, apiv1.ReasonDeviceHeld},
		"a mount that is busy":            {busy, apiv1.ReasonMountBusy, apiv1.ReasonMountBusy},
		"a filesystem that is damaged":    {damaged, apiv1.ReasonFilesystemDamaged, apiv1.ReasonFilesystemDamaged},
		"a record without space":          {full, apiv1.ReasonNodeDiskFull, apiv1.ReasonNodeDiskFull},
		"a node's read-only disk": {fmt.Errorf("x: %w", syscall.EROFS), apiv1.ReasonNodeDiskFull,
			apiv1.ReasonNodeDiskFull},
		"another error":                {other, says, apiv1.ReasonUnmountFailed},
		"an error without a kind":      {errors.New("exit code 32"), says, apiv1.ReasonUnmountFailed},
		"a request that is wrong":      {provisioner.Errorf(provisioner.InvalidArgument, "path"), says, says},
		"another call that is running": {provisioner.Errorf(provisioner.Conflict, "another call"), not, not},
		"a caller that has gone":       {context.Canceled, not, not},
		"a device that writes slowly":  {fmt.Errorf("sync: %w", context.DeadlineExceeded), not, apiv1.ReasonUnmountFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for unmounts, want := range map[bool]string{false: c.mounts, true: c.unmounted} {
				got, ok := problem.OfCall(unmounts, c.err)
				switch {
				case !ok:
					got += not
				case got == "":
					got = says
				}
				if got != want {
					t.Errorf("unmounts %t: got %s, want %s", unmounts, got, want)
				}
			}
		})
	}
}

func TestTheCauseForWhichAFilesystemTakesNoWrites(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sealed, frozen bool
		want, message  string
	}{
		"it takes them":               {false, false, "", ""},
		"the kernel has stopped it":   {true, false, apiv1.ReasonFilesystemTakesNoWrites, "the ext4 on /dev/sdc is read-only; the kernel makes a filesystem read-only after an error"},
		"it is frozen":                {false, true, apiv1.ReasonFilesystemFrozen, "the ext4 on /dev/sdc is frozen, mounted at /staging"},
		"it is stopped while frozen ": {true, true, apiv1.ReasonFilesystemTakesNoWrites, "the ext4 on /dev/sdc is read-only; the kernel makes a filesystem read-only after an error"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reason, message := problem.OfFilesystem(problem.Filesystem{Type: "ext4", Device: "/dev/sdc", Path: "/staging",
				Sealed: c.sealed, Frozen: c.frozen})
			if reason != c.want || message != c.message {
				t.Errorf("got %q, %q; want %q, %q", reason, message, c.want, c.message)
			}
		})
	}
}

func TestAProblemIsReportedIfItLastsAndUntilItEnds(t *testing.T) {
	t.Parallel()
	const (
		held, frozen, damaged = apiv1.ReasonDeviceHeld, apiv1.ReasonFilesystemFrozen, apiv1.ReasonFilesystemDamaged
		pod, other            = problem.Source("publishing /pod"), problem.Source("publishing /other")
	)
	start := time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	// saw is what a source says of volume v at a second.
	type saw struct {
		at     int
		source problem.Source
		reason string
	}
	for name, c := range map[string]struct {
		former []string // the reasons that an earlier process has reported of volume v, a minute ago
		saw    []saw
		at     int
		want   string // "" for none, or the reason and the second of its start
	}{
		"nothing":                    {nil, nil, 0, ""},
		"once":                       {nil, []saw{{0, problem.Staging, held}}, 20, ""},
		"again before it lasts":      {nil, []saw{{0, problem.Staging, held}, {9, problem.Staging, held}}, 9, ""},
		"again":                      {nil, []saw{{0, problem.Staging, held}, {10, problem.Staging, held}}, 10, "DeviceHeld 0"},
		"another cause begins again": {nil, []saw{{0, problem.Staging, held}, {10, problem.Staging, damaged}}, 10, ""},
		"it has ended":               {nil, []saw{{0, problem.Staging, held}, {10, problem.Staging, held}, {11, problem.Staging, ""}}, 11, ""},
		"success elsewhere does not end it": {nil, []saw{{0, pod, held}, {10, pod, held}, {11, other, ""},
			{11, problem.Mounted, ""}},
			11, "DeviceHeld 0"},
		"the kubelet waits":            {nil, []saw{{0, problem.Staging, held}, {10, problem.Staging, held}}, 250, "DeviceHeld 0"},
		"the kubelet has forgotten it": {nil, []saw{{0, problem.Staging, held}, {10, problem.Staging, held}}, 311, ""},
		"the first cause counts": {nil, []saw{{0, problem.Staging, held}, {5, problem.Mounted, frozen},
			{15, problem.Staging, held}, {15, problem.Mounted, frozen}}, 15, "FilesystemFrozen 5"},
		"a new process does not know better": {[]string{held}, nil, 0, "DeviceHeld -60"},
		"a new process sees it again":        {[]string{held}, []saw{{5, problem.Staging, held}}, 5, "DeviceHeld -60"},
		"a new process sees its end":         {[]string{held}, []saw{{5, problem.Staging, ""}}, 5, ""},
		"a new process sees something else":  {[]string{frozen}, []saw{{5, problem.Staging, ""}}, 5, "FilesystemFrozen -60"},
		"a new process never hears of it":    {[]string{held}, nil, 301, ""},
		"a cause of a later version":         {[]string{"SomethingNew"}, nil, 1, "SomethingNew -60"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b problem.Book
			for _, reason := range c.former {
				b.Resume([]apiv1.VolumeProblem{{VolumeName: "v", Reason: reason, StartTime: metav1.NewTime(at(-60))}}, start)
			}
			for _, s := range c.saw {
				b.Saw("v", s.source, s.reason, "words", at(s.at))
			}
			got := ""
			for _, p := range b.Problems(at(c.at)) {
				got += fmt.Sprintf("%s %d", p.Reason, int(p.StartTime.Sub(start).Seconds()))
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			b.Forget("v")
			if got := b.Problems(at(c.at)); len(got) > 0 {
				t.Errorf("got %+v of a volume that is released, want none", got)
			}
		})
	}
}

func TestTheReportIsBounded(t *testing.T) {
	t.Parallel()
	var b problem.Book
	now := time.Now()
	for i := range 100 {
		for _, at := range []time.Time{now, now.Add(time.Minute)} {
			b.Saw(fmt.Sprintf("v%02d", i), problem.Staging, apiv1.ReasonDeviceHeld, "", at)
		}
	}
	got := b.Problems(now.Add(time.Minute))
	if len(got) != 8 || !slices.IsSortedFunc(got, func(a, b apiv1.VolumeProblem) int {
		if a.VolumeName < b.VolumeName {
			return -1
		}
		return 1
	}) {
		t.Errorf("got %d problems, want the first 8 in the order of the volumes", len(got))
	}
}
