package client

import "strings"

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
