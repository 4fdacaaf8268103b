// Package charts holds the Helm chart, and gives tests what the chart installs.
package charts

import "embed"

// CRDs are the custom resource definitions, at their paths below this folder. They are a part of
// each test's program that uses them, so that Go knows what the test was made of when it remembers
// that it passed.
//
//go:embed azuredisk/files/crds/*.yaml
var CRDs embed.FS
