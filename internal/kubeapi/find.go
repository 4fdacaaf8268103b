package kubeapi

import (
	"context"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Lender is a reader that can lend its own objects, which are only to be read. A read of another
// reader copies each object, if not what it points to. lent is false if it has no objects of the
// kind of example, or not all yet: then they are to be read as from another reader.
type Lender interface {
	// Lend returns the object of a name, nil for none.
	Lend(example client.Object, key client.ObjectKey) (object client.Object, lent bool)
	// LendBy returns the objects that an indexed field has a value for, in all namespaces if
	// namespace is "".
	LendBy(example client.Object, namespace, field, value string) (objects []any, lent bool)
}

// Find reads an object. It returns nil if there is none. With client.UnsafeDisableDeepCopy the
// object is the cache's own, or shares memory with it, and must not be changed.
func Find[T any, Object interface {
	*T
	client.Object
}](ctx context.Context, reader client.Reader, key client.ObjectKey, options ...client.GetOption) (Object, error) {
	if lender, is := reader.(Lender); is && len(options) > 0 {
		var all client.GetOptions
		all.ApplyOptions(options)
		if shared := all.UnsafeDisableDeepCopy; shared != nil && *shared {
			if object, lent := lender.Lend(Object(nil), key); lent {
				found, _ := object.(Object)
				return found, nil
			}
		}
	}
	found := Object(new(T))
	err := reader.Get(ctx, key, found, options...)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s %s: %w", reflect.TypeFor[T]().Name(), key.Name, err)
	}
	return found, nil
}

// FindBy reads the objects that a field has a value for, which a cache has indexed: in all
// namespaces if namespace is "". They are the cache's own, or share memory with it, and must not be
// changed. list and items, its field, are for a reader that is no Lender.
func FindBy[T any, Object interface {
	*T
	client.Object
}](ctx context.Context, reader client.Reader, list client.ObjectList, items *[]T, namespace, field, value string) ([]*T, error) {
	if lender, is := reader.(Lender); is {
		if objects, lent := lender.LendBy(Object(nil), namespace, field, value); lent {
			found := make([]*T, 0, len(objects))
			for _, o := range objects {
				found = append(found, o.(*T))
			}
			return found, nil
		}
	}
	if err := reader.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{field: value},
		client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list each %s with %s %s: %w", reflect.TypeFor[T]().Name(), field, value, err)
	}
	return Pointers(*items), nil
}

// Pointers returns pointers to the items of a list.
func Pointers[T any](items []T) []*T {
	found := make([]*T, 0, len(items))
	for i := range items {
		found = append(found, &items[i])
	}
	return found
}
