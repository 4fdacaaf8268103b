package handover_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// row is a call in a world: the code and a part of the message with which it ends, and the state of
// the volume after it.
type row struct {
	name  string
	given []given
	do    act
	want  codes.Code
	says  string
	then  string
	// left is what a repetition after a failure may leave, and the volume reconciler repairs.
	left string
	// tolerates is an access without which the call succeeds.
	tolerates string
}

func on(prepare ...given) []given { return prepare }

// ok is a call that succeeds, and no is one that does not.
func ok(name string, given []given, do act, then string) row {
	return row{name: name, given: given, do: do, then: then}
}

func no(name string, given []given, do act, want codes.Code, says, then string) row {
	return row{name: name, given: given, do: do, want: want, says: says, then: then}
}

// outOfOrder is the error of an access that fails.
const outOfOrder = "out of order"

// writes are the verbs whose answer may be lost.
var writes = []string{"create", "patch", "patch/status", "delete"}

// run makes the call of each row. Then it makes it again in as many new worlds as the call has
// accesses: in each of them another access fails, or the answer to a write is lost. The call must
// return that error then, and its repetition must end as if there had been no failure.
func run(t *testing.T, rows []row) {
	t.Helper()
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			var accesses []string
			in(t, func(w *world) {
				w.before = func(access string) error { accesses = append(accesses, access); return nil }
				r.check(w, r.do(w))
			}, r.given...)
			for i, access := range accesses {
				if t.Failed() {
					return
				}
				r.failing(t, i, false)
				if verb, _, _ := strings.Cut(access, " "); slices.Contains(writes, verb) {
					r.failing(t, i, true)
				}
			}
		})
	}
}

// leaving is a call whose repetition may leave another state.
func (r row) leaving(state string) row {
	r.left = state
	return r
}

// tolerating is a call that succeeds also if an access fails.
func (r row) tolerating(access string) row {
	r.tolerates = access
	return r
}

// ended checks how a call ended.
func (w *world) ended(err error, want codes.Code, says string) {
	w.Helper()
	if got := status.Code(err); got != want || err != nil && !strings.Contains(err.Error(), says) {
		w.Errorf("got code %s, want %s with %q: %v", got, want, says, err)
	}
}

func (r row) check(w *world, err error) {
	w.Helper()
	w.ended(err, r.want, r.says)
	if got := w.state(); got != r.then {
		w.Errorf("got %q, want %q", got, r.then)
	}
}

// failing makes the call in a world where the access of a number fails, or only its answer does.
func (r row) failing(t *testing.T, number int, answer bool) {
	t.Helper()
	in(t, func(w *world) {
		failed, n := "", 0
		fail := func(access string) error {
			if n++; n != number+1 || access == r.tolerates {
				return nil
			}
			failed = fmt.Sprintf("access %d (%s), only the answer: %t", number, access, answer)
			return apierrors.NewInternalError(errors.New(outOfOrder))
		}
		if answer {
			w.after = fail
		} else {
			w.before = fail
		}
		err := r.do(w)
		if failed == "" {
			return // on another way than before
		}
		if err == nil || r.want == codes.OK && !strings.Contains(err.Error(), outOfOrder) {
			w.Errorf("got error %v although %s fails, want its error", err, failed)
		}
		if r.want == codes.OK {
			w.ended(r.do(w), codes.OK, "")
			if got := w.state(); got != r.then && got != r.left {
				w.Errorf("got %q, want %q", got, r.then)
			}
			if w.Failed() {
				w.Logf("the repetition after %s", failed)
			}
		}
	}, r.given...)
}
