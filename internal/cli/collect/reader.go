package collect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/azuredisk-csi/azuredisk/internal/cli/explain"
)

// reader reads from the API server, and remembers what it may not read.
type reader struct {
	client.Reader

	mu     sync.Mutex
	unread []explain.Unread
}

// missed takes note of a read that is not allowed, or of a resource that the cluster does not have.
// It returns any other error.
func (r *reader) missed(what string, err error) error {
	if err == nil {
		return nil
	}
	missed := unread(what, err)
	if missed.Reason == explain.UnreadFailed {
		return fmt.Errorf("read %s: %w", what, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.ContainsFunc(r.unread, func(u explain.Unread) bool { return u.What == what }) {
		r.unread = append(r.unread, missed)
	}
	return nil
}

// unread says why a resource could not be read.
func unread(what string, err error) explain.Unread {
	switch {
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return explain.Unread{What: what, Reason: explain.UnreadForbidden, Why: "not allowed"}
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		return explain.Unread{What: what, Reason: explain.UnreadNotServed, Why: "the cluster does not have this resource"}
	}
	return explain.Unread{What: what, Reason: explain.UnreadFailed, Why: err.Error()}
}

// isUnread reports whether a resource could not be read.
func (r *reader) isUnread(what string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.unread, func(u explain.Unread) bool { return u.What == what })
}

// get reads an object. It returns nil if there is none, and if it may not be read.
func get[T any, Object interface {
	*T
	client.Object
}](ctx context.Context, r *reader, what, namespace, name string) (Object, error) {
	found := Object(new(T))
	if ok, err := r.read(ctx, what, client.ObjectKey{Namespace: namespace, Name: name}, found); !ok {
		return nil, err
	}
	return found, nil
}

// read reads an object into another. It returns false if there is none, and if it may not be read.
func (r *reader) read(ctx context.Context, what string, key client.ObjectKey, into client.Object) (bool, error) {
	err := r.Get(ctx, key, into)
	if apierrors.IsNotFound(err) && !resourceMissing(err) {
		return false, nil
	}
	return err == nil, r.missed(what, err)
}

// resourceMissing reports whether an answer is that there is no such resource at all, and not that
// there is no such object: then the answer is not the registry's, and the client says so.
func resourceMissing(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Details != nil &&
		slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool {
			return c.Type == metav1.CauseTypeUnexpectedServerResponse
		})
}

// list reads objects. It leaves the list empty if they may not be read.
func (r *reader) list(ctx context.Context, what string, into client.ObjectList, options ...client.ListOption) error {
	return r.missed(what, r.List(ctx, into, options...))
}

// listInto appends the objects of a resource to a slice. The slice stays as it is if there are none, or
// if they may not be read.
func listInto[T any](r *reader, what string, list client.ObjectList, into *[]*T, options ...client.ListOption) step {
	return func(ctx context.Context) error {
		if err := r.list(ctx, what, list, options...); err != nil {
			return err
		}
		return meta.EachListItem(list, func(o runtime.Object) error {
			if item, ok := any(o).(*T); ok {
				*into = append(*into, item)
			}
			return nil
		})
	}
}
