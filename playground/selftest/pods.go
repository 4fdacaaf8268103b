package selftest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
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
	pod, err = t.waitForPod(ctx, pod.Name, func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
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

func (t *test) waitForPod(ctx context.Context, name string, reached func(*corev1.Pod) bool) (*corev1.Pod, error) {
	var last *corev1.Pod
	err := wait.PollUntilContextCancel(ctx, pollEvery, true, func(ctx context.Context) (bool, error) {
		pod, err := t.kube.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, err
		}
		if err != nil {
			return false, nil
		}
		last = pod
		return reached(pod), nil
	})
	if err != nil {
		return nil, fmt.Errorf("wait for pod %s: %w; it is %+v", name, err, statusOf(last))
	}
	return last, nil
}

func statusOf(pod *corev1.Pod) any {
	if pod == nil {
		return "unknown"
	}
	return pod.Status.ContainerStatuses
}

// waitForNode waits until the node's condition Ready is so, as judged after the time.
func (t *test) waitForNode(ctx context.Context, name string, after time.Time, status corev1.ConditionStatus) error {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	err := wait.PollUntilContextCancel(ctx, pollEvery, true, func(ctx context.Context) (bool, error) {
		node, err := t.kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, nil
		}
		for _, c := range node.Status.Conditions {
			// The API has whole seconds.
			if c.Type == corev1.NodeReady && c.Status == status && !c.LastHeartbeatTime.Time.Before(after.Truncate(time.Second)) {
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("wait for %s to be Ready=%s: %w", name, status, err)
	}
	return nil
}
