package kube

import (
	"context"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Find reads an object. It returns nil if there is none. With client.UnsafeDisableDeepCopy the
// object shares memory with the cache, and must not be changed.
func Find[T any, Object interface {
	*T
	client.Object
}](ctx context.Context, reader client.Reader, key client.ObjectKey, options ...client.GetOption) (Object, error) {
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
// namespaces if namespace is "". They share memory with the cache, and must not be changed. items
// is a field of list.
func FindBy[T any](ctx context.Context, reader client.Reader, list client.ObjectList, items *[]T,
	namespace, field, value string) ([]*T, error) {
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
