package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/azuredisk-csi/azuredisk/playground/cluster"
	"github.com/azuredisk-csi/azuredisk/playground/state"
)

func newStatusCommand(dir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show what runs where; the exit code is 0 if the playground is up and ready",
		Args:  cobra.NoArgs,
		RunE: attached(dir, func(cmd *cobra.Command, _ []string, c *cluster.Cluster) error {
			status, err := c.Status(cmd.Context())
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 4, 3, ' ', 0)
			view := &statusView{
				cluster: c,
				status:  status,
				out:     w,
			}
			view.print(cmd.Context())
			if err := w.Flush(); err != nil {
				return err
			}
			return c.Ready(cmd.Context())
		}),
	}
}

// statusView prints a status. What cannot be found out is shown as "?".
type statusView struct {
	cluster *cluster.Cluster
	status  state.Status
	out     io.Writer
}

func (v *statusView) row(cells ...any) {
	for i, cell := range cells {
		if i > 0 {
			fmt.Fprint(v.out, "\t")
		}
		fmt.Fprint(v.out, cell)
	}
	fmt.Fprintln(v.out)
}

func (v *statusView) print(ctx context.Context) {
	s := v.status
	fmt.Fprintf(v.out, "The playground is %s, for %s, on %s, in %s\n", s.Phase, time.Since(s.Started).Round(time.Second),
		s.Cgroups, v.cluster.Dir)
	if s.Error != "" {
		fmt.Fprintf(v.out, "It failed: %s\n", s.Error)
	}
	fmt.Fprintln(v.out)
	v.row("PROGRAM", "PID", "RESTARTS")
	for _, c := range s.Components {
		v.row(c.Name, v.hostPID(c.PID), c.Restarts)
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	client, err := v.cluster.Kubernetes()
	if err != nil {
		fmt.Fprintf(v.out, "\nthe API server cannot be asked: %v\n", err)
		return
	}
	fmt.Fprintln(v.out)
	v.nodes(ctx, client)
	fmt.Fprintln(v.out)
	v.driver(ctx, client)
	fmt.Fprintf(v.out, `
API server   %s (KUBECONFIG=%s, or playground kubectl …)
azuresim     %s on the host, %s for pods; admin API %s
logs         %s
look inside  playground enter node-1 | cp | azure | net
`, s.Server, v.cluster.Dir.Kubeconfig(), s.AzureHost, s.Azure, s.AzureAdmin, v.cluster.Dir.Logs())
}

func (v *statusView) nodes(ctx context.Context, client kubernetes.Interface) {
	ready := map[string]string{}
	if list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err == nil {
		for _, node := range list.Items {
			for _, c := range node.Status.Conditions {
				if c.Type == corev1.NodeReady {
					ready[node.Name] = string(c.Status)
				}
			}
		}
	}
	v.row("NODE", "READY", "POWER", "FROZEN", "NETWORK", "ZONE", "ADDRESS", "PID")
	for _, n := range v.status.Nodes {
		v.row(n.Name, orUnknown(ready[n.Name]), onOff(n.Power), yesNo(n.Frozen), onOff(n.Connected), n.Zone, n.Address,
			v.hostPID(n.PID))
	}
}

func (v *statusView) driver(ctx context.Context, client kubernetes.Interface) {
	pods, err := client.CoreV1().Pods(cluster.DriverNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		fmt.Fprintf(v.out, "the driver's pods cannot be listed: %v\n", err)
		return
	}
	if len(pods.Items) == 0 {
		fmt.Fprintln(v.out, "The driver is not installed.")
		return
	}
	v.row("DRIVER POD", "READY", "STATUS", "NODE", "RESTARTS")
	for _, pod := range pods.Items {
		ready, restarts := 0, int32(0)
		for _, c := range pod.Status.ContainerStatuses {
			restarts += c.RestartCount
			if c.Ready {
				ready++
			}
		}
		v.row(pod.Name, fmt.Sprintf("%d/%d", ready, len(pod.Spec.Containers)), pod.Status.Phase, orUnknown(pod.Spec.NodeName),
			restarts)
	}
}

func (v *statusView) hostPID(pid int) string {
	if pid == 0 {
		return "-"
	}
	host, err := v.cluster.HostPID(pid)
	if err != nil {
		return "?"
	}
	return fmt.Sprint(host)
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

func orUnknown(s string) string {
	if s == "" {
		return "?"
	}
	return s
}
