package outages

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/azuredisk-csi/azuredisk/playground/scenario"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/observer"
	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

// attacher is the sidecar that passes Kubernetes' wishes on to the controller beside it. A driver
// without VolumeAttachments has none.
const attacher = "csi-attacher"

const attacherLease = "external-attacher-leader-disk-csi-azure-com"

// controllers are the driver's controllers, which can be told where to die.
type controllers struct{ env *scenario.Environment }

// attach reports whether the controllers have an attacher beside them.
func (c *controllers) attach() bool {
	return slices.ContainsFunc(c.env.View.Controllers(), func(pod *corev1.Pod) bool {
		return slices.ContainsFunc(pod.Spec.Containers,
			func(container corev1.Container) bool { return container.Name == attacher })
	})
}

// settle blocks until two controllers are Ready and one of them has both leases, and
// returns that one. A crash of the leader then is one of the attacher's driver as well.
func (c *controllers) settle(ctx context.Context) (string, error) {
	var leads string
	settled := func() bool {
		pods := c.env.View.Controllers()
		leads, _ = c.env.View.LeaseHolder(scenario.ControllerLease)
		attaches, _ := c.env.View.LeaseHolder(attacherLease)
		return len(pods) == 2 && observer.IsReady(pods[0]) && observer.IsReady(pods[1]) && (leads == attaches || !c.attach()) &&
			slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return pod.Name == leads })
	}
	for range 5 {
		err := c.env.View.Await(ctx, 25*time.Second, "two controllers are ready and one of them leads in everything", settled)
		if err == nil || ctx.Err() != nil {
			return leads, err
		}
		// The attacher that is not beside the leader is removed.
		attaches, _ := c.env.View.LeaseHolder(attacherLease)
		if attaches == "" || attaches == leads {
			continue
		}
		if err := c.remove(ctx, attaches); err != nil {
			return "", err
		}
		if err := c.give(ctx, attacherLease, leads); err != nil {
			return "", err
		}
	}
	return "", errors.New("no controller leads in everything")
}

// remove deletes a controller's pod at once, if it is there; another takes its place.
func (c *controllers) remove(ctx context.Context, pod string) error {
	err := c.env.Kube.CoreV1().Pods(observer.DriverNamespace).Delete(ctx, pod,
		metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
	if err != nil {
		return fmt.Errorf("delete the controller %s: %w", pod, err)
	}
	return nil
}

// give hands a lease whose holder is gone to a sidecar of that pod, which goes by the
// pod's name. It would have got it or not by chance.
func (c *controllers) give(ctx context.Context, lease, pod string) error {
	now := metav1.NewMicroTime(c.env.Clock.Now()).UTC().Format(metav1.RFC3339Micro)
	patch := fmt.Appendf(nil, `{"spec":{"holderIdentity":%q,"renewTime":%q}}`, pod, now)
	if _, err := c.env.Kube.CoordinationV1().Leases(observer.DriverNamespace).Patch(ctx, lease, types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("hand over the lease %s: %w", lease, err)
	}
	return nil
}

// incarnation tells one run of a controller's program from the next.
func incarnation(pod *corev1.Pod) string {
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name == observer.ControllerPlugin {
			return fmt.Sprint(pod.UID, " ", status.RestartCount, " ", status.State.Terminated != nil)
		}
	}
	return string(pod.UID)
}

// passedPoint is a crash point that a controller came to.
type passedPoint struct {
	Point string `json:"point"`
	Times int    `json:"times"`
}

// passed are the points that the pod's controller has come to since it started.
func (c *controllers) passed(ctx context.Context, pod string) ([]passedPoint, error) {
	raw, err := c.crash(ctx, "GET", pod, "")
	if err != nil {
		return nil, err
	}
	var state struct {
		Passed []passedPoint `json:"passed"`
	}
	if err := json.Unmarshal(raw, &state); err != nil {
		return nil, fmt.Errorf("read the crash points of %s: %w", pod, err)
	}
	return state.Passed, nil
}

// arm has the pod's controller die at that point.
func (c *controllers) arm(ctx context.Context, pod, point string) error {
	_, err := c.crash(ctx, "POST", pod, point)
	if err == nil {
		c.env.Say(timeline.Controller, "", "the leader is to die at "+point, pod)
	}
	return err
}

// disarm lets the pod's controller live.
func (c *controllers) disarm(ctx context.Context, pod string) error {
	_, err := c.crash(ctx, "DELETE", pod, "")
	return err
}

func (c *controllers) crash(ctx context.Context, verb, pod, point string) ([]byte, error) {
	port, err := controllerPort(c.env, pod, metricsPort)
	if err != nil {
		return nil, err
	}
	request := c.env.Kube.CoreV1().RESTClient().Verb(verb).Namespace(observer.DriverNamespace).Resource("pods").
		Name(pod + ":" + port).SubResource("proxy").Suffix("crash")
	if point != "" {
		request = request.Param("point", point)
	}
	raw, err := request.DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s crash points of %s: %w", verb, pod, err)
	}
	return raw, nil
}
