//go:build !crashpoints

package crashpoint

import "net/http"

// At names a point at which the process can be killed. It does nothing in this build.
func At(string) {}

// Handlers returns the handlers by which points are armed, by path: none in this build.
func Handlers() map[string]http.Handler { return nil }
