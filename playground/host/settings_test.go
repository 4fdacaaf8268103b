package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// laboratory is a machine whose settings are files of the test.
type laboratory struct {
	Shared
	t *testing.T
}

func newLaboratory(t *testing.T) laboratory {
	top := t.TempDir()
	l := laboratory{
		t: t,
		Shared: Shared{
			dir:     filepath.Join(top, "run"),
			sysctl:  filepath.Join(top, "sys"),
			devDisk: filepath.Join(top, "disk"),
		},
	}
	for name, value := range map[string]string{inotifySetting: "128", "kernel/panic": "0"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(l.sysctl, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		l.set(name, value)
	}
	return l
}

func (l laboratory) set(name, value string) {
	l.t.Helper()
	if err := os.WriteFile(filepath.Join(l.sysctl, name), []byte(value+"\n"), 0o644); err != nil {
		l.t.Fatal(err)
	}
}

// use is a playground that comes up, with a kubelet that changes a setting.
func (l laboratory) use() (release func()) {
	l.t.Helper()
	release, _, err := l.Use()
	if err != nil {
		l.t.Fatal(err)
	}
	l.set("kernel/panic", "10")
	return release
}

func (l laboratory) restore() {
	l.t.Helper()
	if err := l.Restore(); err != nil {
		l.t.Fatal(err)
	}
}

// expect checks the settings, and whether the folder of the disks is there.
func (l laboratory) expect(when, inotify, panics string, devDisk bool) {
	l.t.Helper()
	for name, want := range map[string]string{inotifySetting: inotify, "kernel/panic": panics} {
		data, err := os.ReadFile(filepath.Join(l.sysctl, name))
		if got := strings.TrimSpace(string(data)); err != nil || got != want {
			l.t.Errorf("%s: %s is %q (%v), expected %q", when, name, got, err, want)
		}
	}
	if _, err := os.Stat(l.devDisk); (err == nil) != devDisk {
		l.t.Errorf("%s: %s is there: got %v, want %v", when, l.devDisk, err == nil, devDisk)
	}
}

func TestTheLastPlaygroundPutsTheMachineBack(t *testing.T) {
	l := newLaboratory(t)
	l.restore()
	first := l.use()
	l.expect("with one playground", "2048", "10", true)
	second := l.use()
	first()
	l.restore()
	l.expect("the first of two is down", "2048", "10", true)
	third := l.use()
	second()
	l.restore()
	l.expect("the second of three is down", "2048", "10", true)
	third()
	l.expect("the last one has ended, and is not cleaned up yet", "2048", "10", true)
	l.restore()
	l.expect("the last one is down", "128", "0", false)
	l.restore()
	l.expect("what is restored already", "128", "0", false)
}

func TestAPlaygroundThatWasKilledIsNotTakenForTheMachine(t *testing.T) {
	l := newLaboratory(t)
	killed := l.use()
	killed()
	next := l.use()
	next()
	l.restore()
	l.expect("after a playground that was killed, and the next", "128", "0", false)
}

func TestAFolderThatWasThereStays(t *testing.T) {
	l := newLaboratory(t)
	if err := os.Mkdir(l.devDisk, 0o755); err != nil {
		t.Fatal(err)
	}
	l.use()()
	l.restore()
	l.expect("after a playground", "128", "0", true)
}
