package kubeapi

import (
	"context"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Find reads an object. It returns nil if there is none. With client.UnsafeDisableDeepCopy the object shares memory with the cache and must not be changed.
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

// Pointers returns pointers to the items of a list.
func Pointers[T any](items []T) []*T {
	found := make([]*T, 0, len(items))
	for i := range items {
		found = append(found, &items[i])
	}
	return found
}
