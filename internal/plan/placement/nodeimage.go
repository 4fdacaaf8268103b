package placement

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

const (
	// labelAgentPool is the label by which AKS says to which node pool a node belongs, labelNodeImage
	// the one by which it says what image the node was made from, like
	// "AKSUbuntu-2204gen2containerd-202610.05.0".
	labelAgentPool = "kubernetes.azure.com/agentpool"
	labelNodeImage = "kubernetes.azure.com/node-image-version"
)

// outdated returns the names of the nodes that have an older image than another node of their pool:
// an upgrade of the pool is under way, and they will be drained.
func outdated(nodes []NodeView) map[string]bool {
	newest := map[string]string{}
	for i := range nodes {
		labels := nodes[i].Node.Labels
		if pool, version := labels[labelAgentPool], imageVersion(labels[labelNodeImage]); newer(version, newest[pool]) {
			newest[pool] = version
		}
	}
	old := map[string]bool{}
	for i := range nodes {
		labels := nodes[i].Node.Labels
		if newer(newest[labels[labelAgentPool]], imageVersion(labels[labelNodeImage])) {
			old[nodes[i].Node.Name] = true
		}
	}
	return old
}

// imageVersion is the last part of an image's name: a date and a number.
func imageVersion(image string) string { return image[strings.LastIndexByte(image, '-')+1:] }

// newer compares two versions of images, number by number. What is no number counts as the oldest.
func newer(a, b string) bool {
	return slices.CompareFunc(strings.Split(a, "."), strings.Split(b, "."), func(x, y string) int {
		m, _ := strconv.Atoi(x)
		n, _ := strconv.Atoi(y)
		return cmp.Compare(m, n)
	}) > 0
}
