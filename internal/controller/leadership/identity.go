package leadership

import "strings"

// Identity is the name under which a controller holds the leader's lease: its pod, the pod's node,
// and a unique part.
func Identity(pod, node, unique string) string {
	if node == "" {
		return pod + "_" + unique
	}
	return pod + "_" + node + "_" + unique
}

// nodeOf returns the node that an identity names; "" if it names none. Neither a pod's nor a
// node's name contains an underscore.
func nodeOf(identity string) string {
	parts := strings.Split(identity, "_")
	if len(parts) != 3 {
		return ""
	}
	return parts[1]
}
