package kube_test

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/azuredisk-csi/azuredisk/internal/kube"
)

func TestRetry(t *testing.T) {
	t.Parallel()
	conflict := apierrors.NewConflict(schema.GroupResource{}, "vol", nil)
	for name, test := range map[string]struct {
		errs  []error // of the calls in turn; the last one repeats
		want  error
		calls int
	}{
		"a success is not repeated":                  {[]error{nil}, nil, 1},
		"a conflict is repeated until a success":     {[]error{conflict, conflict, nil}, nil, 3},
		"a conflict that does not end is returned":   {[]error{conflict}, conflict, 10},
		"the end of a context is returned at once":   {[]error{context.DeadlineExceeded}, context.DeadlineExceeded, 1},
		"the end of a context after a conflict, too": {[]error{conflict, context.Canceled}, context.Canceled, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls := 0
			err := kube.Retry(apierrors.IsConflict, func() error {
				calls++
				return test.errs[min(calls, len(test.errs))-1]
			})
			if !errors.Is(err, test.want) || calls != test.calls {
				t.Errorf("got error %v after %d calls, want %v after %d", err, calls, test.want, test.calls)
			}
		})
	}
}
