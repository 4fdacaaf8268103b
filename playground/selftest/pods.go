package selftest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/azuredisk-csi/azuredisk/playground/poll"
)

const (
	namespace   = "default"
	podTimeout  = 90 * time.Second
	pollEvery   = 100 * time.Millisecond
	nodeTimeout = 2 * time.Minute
)

// podOn is a pod of the probe on that node.
func (t *test) podOn(node string, args ...string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: "probe-",
			Namespace:    namespace,
			Labels:       map[string]string{"app": args[0]},
		},
		Spec: corev1.PodSpec{
			NodeName:                      node,
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: ptr.To[int64](0),
			Containers: []corev1.Container{{
				Name: "probe", Image: t.image, ImagePullPolicy: corev1.PullNever, Args: args,
			}},
		},
	}
}

// try runs the probe on the node and returns what it printed. It fails if the probe did.
func (t *test) try(ctx context.Context, pod *corev1.Pod) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	pods := t.kube.CoreV1().Pods(namespace)
	pod, err := pods.Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	err = poll.Until(ctx, podTimeout, pollEvery, "pod "+pod.Name+" has ended", func(ctx context.Context) error {
		now, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if pod = now; pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			return fmt.Errorf("it is %+v", pod.Status.ContainerStatuses)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	stream, err := pods.GetLogs(pod.Name, &corev1.PodLogOptions{}).Stream(ctx)
	if err != nil {
		return "", err
	}
	defer stream.Close()
	output, err := io.ReadAll(stream)
	if err != nil {
		return "", err
	}
	if pod.Status.Phase == corev1.PodFailed {
		return "", &probeError{pod, strings.TrimSpace(string(output))}
	}
	return string(output), pods.Delete(ctx, pod.Name, metav1.DeleteOptions{})
}

// expect runs the probe and checks that what it prints holds the text.
func (t *test) expect(ctx context.Context, pod *corev1.Pod, text string) error {
	output, err := t.try(ctx, pod)
	if err != nil {
		return err
	}
	if !strings.Contains(output, text) {
		return fmt.Errorf("%v on %s: %q does not hold %q", pod.Spec.Containers[0].Args, pod.Spec.NodeName, output, text)
	}
	return nil
}

// expectFailure runs the probe and checks that it fails.
func (t *test) expectFailure(ctx context.Context, pod *corev1.Pod) error {
	output, err := t.try(ctx, pod)
	if _, ok := errors.AsType[*probeError](err); ok {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("%v on %s: it printed %q, want that it fails", pod.Spec.Containers[0].Args, pod.Spec.NodeName, output)
	}
	return err
}

// probeError is a probe that failed.
type probeError struct {
	pod    *corev1.Pod
	output string
}

func (e *probeError) Error() string {
	return fmt.Sprintf("%v on %s: %s", e.pod.Spec.Containers[0].Args, e.pod.Spec.NodeName, e.output)
}

// awaitReady waits until the node is Ready, as judged after the time.
func (t *test) awaitReady(ctx context.Context, name string, after time.Time) error {
	return poll.Until(ctx, nodeTimeout, pollEvery, name+" is Ready", func(ctx context.Context) error {
		node, err := t.kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			// The API has whole seconds.
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue &&
				!c.LastHeartbeatTime.Time.Before(after.Truncate(time.Second)) {
				return nil
			}
		}
		return fmt.Errorf("its conditions are %+v", node.Status.Conditions)
	})
}
