// Package version says which build of the driver this is.
package version

// Version is set by the linker: -X github.com/azuredisk-csi/azuredisk/internal/version.Version=…
var Version = "dev"
