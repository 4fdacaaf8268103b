package store

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

type thing struct{ N int }

var things = Table[thing]{Name: "things"}

func open(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(path, time.Second, things.Name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestRecordsAreThereAfterReopen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	s := open(t, path)
	committed := false
	err := s.Update(func(tx *Tx) error {
		tx.OnCommit(func() { committed = true })
		return things.Put(tx, "a", &thing{1})
	})
	if err != nil || !committed {
		t.Fatal(err, committed)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	defer s.Close()
	err = s.View(func(tx *Tx) error {
		got, err := things.Get(tx, "a")
		if err != nil || got == nil || got.N != 1 {
			t.Errorf("got %v, %v", got, err)
		}
		none, err := things.Get(tx, "b")
		if err != nil || none != nil {
			t.Errorf("got %v, %v for nothing, want nil", none, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestFailedTransactionsLeaveNothing(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"))
	defer s.Close()
	fail := errors.New("no")
	err := s.Update(func(tx *Tx) error {
		tx.OnCommit(func() { t.Error("OnCommit ran") })
		if err := things.Put(tx, "a", &thing{1}); err != nil {
			return err
		}
		return fail
	})
	if !errors.Is(err, fail) {
		t.Errorf("got %v", err)
	}
	_ = s.View(func(tx *Tx) error {
		if got, _ := things.Get(tx, "a"); got != nil {
			t.Error("the record is there")
		}
		return nil
	})
}

func TestScanKeepsToPrefixAndGoesOnAfter(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"))
	defer s.Close()
	err := s.Update(func(tx *Tx) error {
		for i, k := range []string{"a/1", "a/2", "a/3", "b/1", "Z"} {
			if err := things.Put(tx, k, &thing{i}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	_ = s.View(func(tx *Tx) error {
		for _, tc := range []struct {
			prefix, after string
			want          []string
		}{{"a/", "", []string{"a/1", "a/2", "a/3"}}, {"a/", "a/1", []string{"a/2", "a/3"}}, {"a/", "a/3", nil}, {"c", "", nil}} {
			var got []string
			for r, err := range things.Scan(tx, tc.prefix, tc.after) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, r.Key)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("Scan(%q, %q) = %v, want %v", tc.prefix, tc.after, got, tc.want)
			}
		}
		return nil
	})
}
