package client

import (
	"context"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
)

// Each visits the items of all pages.
func Each[P, T any](ctx context.Context, pager *runtime.Pager[P], items func(P) []*T, visit func(*T)) error {
	for pager.More() {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return err
		}
		for _, item := range items(page) {
			if item != nil {
				visit(item)
			}
		}
	}
	return nil
}

// Value is what a pointer of the SDK points to, or the zero value.
func Value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// NormalLocation is a region's name in the form in which names are compared.
func NormalLocation(s string) string { return strings.ToLower(strings.ReplaceAll(s, " ", "")) }
