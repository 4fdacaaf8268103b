package supervisor

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"text/template"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/azuredisk-csi/azuredisk/playground/topology"
)

//go:embed manifests/cluster.yaml
var clusterManifest string

// resources maps the kinds of the cluster's own objects to their resources.
var resources = map[string]string{
	"ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings", "ServiceAccount": "serviceaccounts",
	"ConfigMap": "configmaps", "Deployment": "deployments", "Service": "services", "Namespace": "namespaces",
	"ValidatingAdmissionPolicy":        "validatingadmissionpolicies",
	"ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
	"MutatingWebhookConfiguration":     "mutatingwebhookconfigurations",
	"ValidatingWebhookConfiguration":   "validatingwebhookconfigurations",
}

// restConfig is the configuration of a client that dials from inside the control
// plane's namespace as a user beyond all authorization.
func (s *Supervisor) restConfig() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", s.credentials.Kubeconfig("super-admin"))
	if err != nil {
		return nil, err
	}
	config.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) { return s.controlPlane.Dial(ctx) }
	config.QPS, config.Burst = 100, 200
	return config, nil
}

// populate makes the objects that belong to the cluster itself.
func (s *Supervisor) populate(ctx context.Context) error {
	config, err := s.restConfig()
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	values := map[string]string{"Domain": topology.ClusterDomain, "DNS": s.plan.DNS().String(), "DNSImage": s.opts.DNS.Ref}
	if err := template.Must(template.New("cluster").Parse(clusterManifest)).Execute(&text, values); err != nil {
		return err
	}
	decoder := utilyaml.NewYAMLOrJSONDecoder(&text, 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("read the cluster's manifest: %w", err)
		}
		if err := apply(ctx, client, object); err != nil {
			return fmt.Errorf("make %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return s.registerNodes(ctx, config)
}

func apply(ctx context.Context, client dynamic.Interface, object *unstructured.Unstructured) error {
	gvk := object.GroupVersionKind()
	gvr := schema.GroupVersionResource{
		Group:    gvk.Group,
		Version:  gvk.Version,
		Resource: resources[gvk.Kind],
	}
	data, err := object.MarshalJSON()
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		_, err = client.Resource(gvr).Namespace(object.GetNamespace()).Patch(ctx, object.GetName(),
			"application/apply-patch+yaml", data, metav1.PatchOptions{FieldManager: "playground", Force: ptr.To(true)})
		// The namespace kube-system is made a moment after the API server is ready.
		if !apierrors.IsNotFound(err) || time.Now().After(deadline) {
			return err
		}
	}
}

// registerNodes makes the Node objects as a cloud provider would: with the pods'
// addresses, which a kubelet cannot set for itself, and with the machine's address,
// which spares kube-proxy waiting for it.
func (s *Supervisor) registerNodes(ctx context.Context, config *rest.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	for _, n := range s.plan.Nodes {
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: map[string]string{
				"kubernetes.io/hostname": n.Name, "kubernetes.io/os": "linux",
			}},
			Spec: corev1.NodeSpec{
				PodCIDR:    n.PodNet.String(),
				PodCIDRs:   []string{n.PodNet.String()},
				ProviderID: n.ProviderID(),
				Taints:     []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}},
			},
		}
		if n.Pool != nil {
			node.Spec.Taints = append(node.Spec.Taints, n.Pool.StartupTaints...)
		}
		for key, value := range n.Labels() {
			node.Labels[key] = value
		}
		created, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("register %s: %w", n.Name, err)
		}
		created.Status.Addresses = []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: n.Address.String()},
			{Type: corev1.NodeHostName, Address: n.Name},
		}
		if _, err := client.CoreV1().Nodes().UpdateStatus(ctx, created, metav1.UpdateOptions{}); err != nil &&
			!apierrors.IsConflict(err) {
			return fmt.Errorf("register the address of %s: %w", n.Name, err)
		}
	}
	return nil
}

// waitForNodes waits until all nodes are Ready, and says which one has become so.
func (s *Supervisor) waitForNodes(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	config, err := s.restConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ready := map[string]bool{}
	for {
		list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err == nil {
			for _, node := range list.Items {
				if isReady(node) && !ready[node.Name] {
					ready[node.Name] = true
					s.progress("%s is Ready (%s)", node.Name, node.Labels["topology.kubernetes.io/zone"])
				}
			}
			if len(ready) == len(s.plan.Nodes) {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			var missing []string
			for _, n := range s.plan.Nodes {
				if !ready[n.Name] {
					missing = append(missing, n.Name)
				}
			}
			return fmt.Errorf("wait for %s to be Ready (see %s): %w", strings.Join(missing, ", "),
				s.dir.Logs(missing[0], "kubelet.log"), ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func isReady(node corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// writeKubeconfig writes the administrator's kubeconfig for use on the host.
func (s *Supervisor) writeKubeconfig(server string) error {
	config, err := clientcmd.LoadFromFile(s.credentials.Kubeconfig("admin"))
	if err != nil {
		return err
	}
	for _, cluster := range config.Clusters {
		cluster.Server = server
	}
	data, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	return os.WriteFile(s.dir.Kubeconfig(), data, 0o600)
}
