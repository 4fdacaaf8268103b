package scenario

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/azuredisk-csi/azuredisk/playground/timeline"
)

const (
	driverSelector   = "app.kubernetes.io/part-of=azuredisk"
	componentLabel   = "app.kubernetes.io/component"
	controllerPlugin = "controller"
	nodePlugin       = "node"
	maxLogLine       = 1 << 20
)

// onThePath are the calls of a move that Kubernetes waits for between the old pod's
// end and the new one's start.
var onThePath = []string{"ControllerUnpublishVolume", "ControllerPublishVolume", "NodeStageVolume"}

// call is a CSI call that the driver served, as its log tells.
type call struct {
	Start    time.Time
	Duration time.Duration
	Method   string
	Volume   string // the CSI volume handle
	Code     string
	Error    string
	// Component is the plug-in that served it, on Node.
	Component, Node string
}

// logLine is a line of the driver's log with logFormat json.
type logLine struct {
	Time     time.Time `json:"time"`
	Message  string    `json:"msg"`
	Method   string    `json:"method"`
	VolumeID string    `json:"volumeID"`
	Code     string    `json:"code"`
	Duration string    `json:"duration"`
	Error    string    `json:"error"`
}

// parseCalls reads the calls from a log. Lines of anything else are skipped.
func parseCalls(log io.Reader, component, node string) ([]call, error) {
	var calls []call
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, maxLogLine)
	for lines.Scan() {
		var line logLine
		if json.Unmarshal(lines.Bytes(), &line) != nil || line.Method == "" || line.VolumeID == "" {
			continue
		}
		// Only the line that ends a call has a duration.
		took, err := time.ParseDuration(line.Duration)
		if err != nil || line.Code == "" {
			continue
		}
		calls = append(calls, call{
			Start: line.Time.Add(-took), Duration: took, Method: line.Method, Volume: line.VolumeID,
			Code: line.Code, Error: line.Error, Component: component, Node: node,
		})
	}
	return calls, lines.Err()
}

// driverCalls reads the calls since that time from the logs of all plug-ins.
func (e *Environment) driverCalls(ctx context.Context, since time.Time) ([]call, error) {
	pods, err := e.kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: driverSelector})
	if err != nil {
		return nil, fmt.Errorf("list the driver's pods: %w", err)
	}
	var calls []call
	for _, pod := range pods.Items {
		component := pod.Labels[componentLabel]
		if component != controllerPlugin && component != nodePlugin {
			continue
		}
		read, err := e.podCalls(ctx, pod, component, since)
		if err != nil {
			return nil, fmt.Errorf("read the log of %s: %w", pod.Name, err)
		}
		calls = append(calls, read...)
	}
	if len(calls) == 0 {
		return nil, errors.New("the driver's logs hold no CSI call; is its log format json and its level info?")
	}
	return calls, nil
}

// podCalls reads the log of the plug-in's container, which is named like the component.
func (e *Environment) podCalls(ctx context.Context, pod corev1.Pod, component string, since time.Time) ([]call, error) {
	options := &corev1.PodLogOptions{Container: component, SinceTime: &metav1.Time{Time: since.Add(-time.Second)}}
	stream, err := e.kube.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, options).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Close() }()
	return parseCalls(stream, component, pod.Spec.NodeName)
}

// event draws the call in the lane of the controller or of the node.
func (c call) event(workload string) timeline.Event {
	lane := timeline.Controller
	if c.Component == nodePlugin {
		lane = timeline.Node(c.Node)
	}
	return timeline.Event{
		At: c.Start, Duration: c.Duration, Lane: lane, Kind: timeline.Call, Source: "driver " + c.Component,
		Step: strings.TrimSuffix(c.Method, "Volume") + " " + timeline.Round(c.Duration), Failed: c.Code != "OK",
		Subject: workload, Detail: strings.TrimSpace(c.Code + " " + c.Error),
	}
}

// driverShare is the time that the driver spent in the calls on the path of a move,
// failed attempts included.
func driverShare(calls []call, m Move) time.Duration {
	var sum time.Duration
	for _, c := range calls {
		if slices.Contains(onThePath, c.Method) && m.concerns(c) {
			sum += c.Duration
		}
	}
	return sum
}

// concerns reports whether the call is one for the move's volume that began during it.
func (m Move) concerns(c call) bool {
	return strings.EqualFold(c.Volume, m.Volume.Handle) && !c.Start.Before(m.Requested) && !c.Start.After(m.Running)
}
