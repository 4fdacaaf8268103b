package supervisor

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"

	"github.com/azuredisk-csi/azuredisk/playground/aks"
	"github.com/azuredisk-csi/azuredisk/playground/network"
	"github.com/azuredisk-csi/azuredisk/playground/topology"
)

// webhookPort is where AKS's webhooks answer, at the control plane's address.
const webhookPort = 9443

// becomeAKS gives the cluster what one of AKS has, if the profile says so. The context ends with the
// playground.
func (s *Supervisor) becomeAKS(ctx context.Context) error {
	if s.opts.Profile == "" {
		return nil
	}
	config, err := s.restConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	endpoint, err := s.serveWebhooks(ctx, client)
	if err != nil {
		return fmt.Errorf("serve the webhooks of AKS: %w", err)
	}
	objects, err := s.opts.Profile.Objects(endpoint)
	if err != nil {
		return err
	}
	dynamicClient, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := apply(ctx, dynamicClient, object); err != nil {
			return fmt.Errorf("make %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	keeper := &aks.Keeper{
		Profile: s.opts.Profile, Client: client, Events: s.eventsOf, Pool: s.poolSettings, Log: s.log,
	}
	if err := keeper.Look(ctx); err != nil {
		return fmt.Errorf("keep the cluster as AKS does: %w", err)
	}
	go keeper.Keep(ctx)
	s.progress("the cluster is one of AKS (%s)", s.opts.Profile)
	return s.lockDown(ctx)
}

// serveWebhooks starts AKS's webhooks in the control plane's network.
func (s *Supervisor) serveWebhooks(ctx context.Context, client kubernetes.Interface) (aks.Endpoint, error) {
	address := s.plan.ControlPlane().String()
	certificate, key, err := cert.GenerateSelfSignedCertKey(address, []net.IP{net.ParseIP(address)}, nil)
	if err != nil {
		return aks.Endpoint{}, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return aks.Endpoint{}, err
	}
	ns, err := s.lab.Namespace("cp")
	if err != nil {
		return aks.Endpoint{}, err
	}
	listener, err := ns.Listen(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(webhookPort)))
	if err != nil {
		return aks.Endpoint{}, err
	}
	identity := aks.Identity{
		TenantID:      topology.TenantID,
		AuthorityHost: s.armURL,
		ClientID: func(namespace, name string) (string, error) {
			account, err := client.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return "", err
			}
			return account.Annotations["azure.workload.identity/client-id"], nil
		},
	}
	server := &http.Server{
		Handler:           aks.Webhooks(identity, func(pool string) []corev1.Taint { return s.poolSettings(pool).Taints }),
		ReadHeaderTimeout: 10 * time.Second,
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
	}
	go func() {
		if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("AKS's webhooks are not served any more", "error", err)
		}
	}()
	context.AfterFunc(ctx, func() { _ = server.Close() })
	return aks.Endpoint{URL: "https://" + listener.Addr().String(), CA: certificate}, nil
}

// eventsOf are the maintenance events of a node's VM.
func (s *Supervisor) eventsOf(ctx context.Context, name string) ([]aks.Event, error) {
	node, err := s.plan.Node(name)
	if err != nil {
		return nil, err
	}
	var document struct{ Events []aks.Event }
	err = s.azure.Admin().Call(ctx, http.MethodGet, "/admin/vms/"+url.PathEscape(node.VM())+"/scheduled-events", nil, &document)
	return document.Events, err
}

// lockDown puts the deny assignment of AKS Automatic on the node resource group.
func (s *Supervisor) lockDown(ctx context.Context) error {
	if s.opts.Profile != aks.Automatic {
		return nil
	}
	type role = map[string]any
	return s.azure.Admin().Call(ctx, http.MethodPut, "/admin/roles/"+s.opts.Credentials.ClientID, []role{
		{"Name": "Owner", "Actions": []string{"*"}},
		{
			"Name":             "AKS node resource group lockdown",
			"Actions":          []string{"*/write", "*/delete", "*/action"},
			"AssignableScopes": []string{"/subscriptions/" + topology.SubscriptionID + "/resourceGroups/" + topology.NodeGroup},
			"Deny":             true,
		},
	}, nil)
}

// takePorts listens on the ports that AKS's add-ons have on a node, so that nothing else can. The
// listeners end with the node.
func (s *Supervisor) takePorts(ctx context.Context, node string, ns *network.Namespace) error {
	if s.opts.Profile == "" {
		return nil
	}
	var listeners []net.Listener
	for _, port := range aks.Ports() {
		listener, err := ns.Listen(ctx, "tcp", net.JoinHostPort("", strconv.Itoa(port)))
		if err != nil {
			return fmt.Errorf("take port %d of %s: %w", port, node, err)
		}
		listeners = append(listeners, listener)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken[node] = listeners
	return nil
}

// freePorts ends takePorts.
func (s *Supervisor) freePorts(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, listener := range s.taken[node] {
		_ = listener.Close()
	}
	delete(s.taken, node)
}

// setPool changes the settings of a node pool, as `az aks nodepool add` and `update` do.
func (s *Supervisor) setPool(r *http.Request) error {
	name := r.PathValue("name")
	if s.opts.Profile == "" || len(s.plan.InPool(name)) == 0 {
		return fmt.Errorf("there is no node pool %q", name)
	}
	var settings aks.Settings
	if err := json.NewDecoder(r.Body).Decode(&settings); err != nil {
		return fmt.Errorf("read the settings of the pool %s: %w", name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pools[name] = settings
	return nil
}

func (s *Supervisor) poolSettings(name string) aks.Settings {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pools[name]
}
