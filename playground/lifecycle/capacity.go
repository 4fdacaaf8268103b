package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/azuredisk-csi/azuredisk/playground/cluster"
	"github.com/azuredisk-csi/azuredisk/playground/topology"
)

const capacity = "capacity"

var capacityTests = []Test{
	{Topic: capacity, Name: "the objects follow the quota, and the scheduler them", run: followsTheQuota},
	{Topic: capacity, Name: "a pod goes to the zone that has the class's disks, and waits if it may not", run: steersByCapacity},
}

// capacities are the CSIStorageCapacity objects of a class by zone.
func (t *bench) capacities(ctx context.Context, class string) (map[string]storagev1.CSIStorageCapacity, error) {
	list, err := t.kube.StorageV1().CSIStorageCapacities(cluster.DriverNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	found := map[string]storagev1.CSIStorageCapacity{}
	for _, c := range list.Items {
		if c.StorageClassName == class && c.NodeTopology != nil {
			found[c.NodeTopology.MatchLabels[zoneKey]] = c
		}
	}
	return found, nil
}

// awaitCapacities waits until both zones have an object for the class, and each has room or not as
// is said.
func (t *bench) awaitCapacities(ctx context.Context, class string, room map[string]bool) error {
	return await(ctx, fmt.Sprintf("the capacity of %s is %v", class, room), func(ctx context.Context) error {
		found, err := t.capacities(ctx, class)
		if err != nil {
			return err
		}
		have := map[string]bool{}
		for zone, c := range found {
			have[zone] = c.Capacity != nil && !c.Capacity.IsZero()
		}
		return check(maps.Equal(have, room), "it is %v", have)
	})
}

var (
	zone1 = topology.Region + "-1"
	zone2 = topology.Region + "-2"
)

// awaitNoRoom waits until the scheduler says that a pod has to wait for room.
func (t *bench) awaitNoRoom(ctx context.Context, pod string) error {
	_, err := t.awaitPod(ctx, pod, "waits for room", func(p *corev1.Pod) error {
		if p.Spec.NodeName != "" {
			return never("it was put on %s", p.Spec.NodeName)
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				return check(strings.Contains(c.Message, "enough free storage"), "%s", c.Message)
			}
		}
		return errors.New("nothing is said yet")
	})
	return err
}

func (t *bench) awaitScheduled(ctx context.Context, name string) (topology.Node, error) {
	pod, err := t.awaitPod(ctx, name, "has a node", func(p *corev1.Pod) error {
		return check(p.Spec.NodeName != "", "it has none")
	})
	if err != nil {
		return topology.Node{}, err
	}
	return t.Plan.Node(pod.Spec.NodeName)
}

// steersByCapacity uses that the simulated region has no Ultra disks in its second zone. The
// machines could not attach one, so the pods do not run, and need not.
func steersByCapacity(ctx context.Context, t *bench) error {
	class, err := t.class(ctx, "ultra", parameters("skuName", "UltraSSD_LRS", "cachingMode", "None"))
	if err != nil {
		return err
	}
	if err := t.awaitCapacities(ctx, class, map[string]bool{zone1: true, zone2: false}); err != nil {
		return err
	}
	for _, name := range []string{"there", "anywhere"} {
		if err := t.claim(ctx, name, class, "4Gi"); err != nil {
			return err
		}
	}
	if err := t.pod(ctx, "there", []string{"there"}, inZone(zone2)); err != nil {
		return err
	}
	if err := t.pod(ctx, "anywhere", []string{"anywhere"}); err != nil {
		return err
	}
	node, err := t.awaitScheduled(ctx, "anywhere")
	if err != nil {
		return err
	}
	if _, _, err := t.awaitBound(ctx, "anywhere"); err != nil {
		return err
	}
	return errors.Join(
		check(node.ZoneLabel() == zone1, "the pod is in %s", node.ZoneLabel()),
		t.awaitNoRoom(ctx, "there"),
	)
}

// followsTheQuota uses a SKU that no other test uses. The driver asks Azure for the quota once a
// minute.
func followsTheQuota(ctx context.Context, t *bench) error {
	class, err := t.class(ctx, "hdd", parameters("skuName", "Standard_LRS"))
	if err != nil {
		return err
	}
	quota := func(ctx context.Context, limit any) error {
		return t.admin(ctx, http.MethodPut, "/admin/quotas/StandardDiskCount", map[string]any{"limit": limit}, nil)
	}
	t.later("set the quota back", func(ctx context.Context) error { return quota(ctx, nil) })
	if err := quota(ctx, 0); err != nil {
		return err
	}
	if err := t.awaitCapacities(ctx, class, map[string]bool{zone1: false, zone2: false}); err != nil {
		return err
	}
	if err := t.claim(ctx, "data", class, "4Gi"); err != nil {
		return err
	}
	if err := t.pod(ctx, "waiting", []string{"data"}); err != nil {
		return err
	}
	if err := t.awaitNoRoom(ctx, "waiting"); err != nil {
		return err
	}
	if err := quota(ctx, nil); err != nil {
		return err
	}
	if err := t.awaitCapacities(ctx, class, map[string]bool{zone1: true, zone2: true}); err != nil {
		return err
	}
	_, err = t.awaitRunning(ctx, "waiting")
	return err
}
