package supervisor

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
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

// Where AKS's webhooks answer, at the control plane's address, and where the directory answers over
// TLS, at the cloud's: a client that signs in with a workload identity refuses a directory without.
const (
	webhookPort   = 9443
	directoryPort = 8443
)

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
	addresses := []net.IP{s.plan.ControlPlane().AsSlice(), s.plan.Cloud().AsSlice()}
	certificate, key, err := cert.GenerateSelfSignedCertKey(addresses[0].String(), addresses, nil)
	if err != nil {
		return fmt.Errorf("make a certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return fmt.Errorf("read the certificate: %w", err)
	}
	if err := os.WriteFile(s.dir.DirectoryCA(), certificate, 0o644); err != nil {
		return err
	}
	secure := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	directory, err := s.serveDirectory(ctx, secure)
	if err != nil {
		return fmt.Errorf("serve the directory over TLS: %w", err)
	}
	webhooks, err := s.serveWebhooks(ctx, client, directory, secure)
	if err != nil {
		return fmt.Errorf("serve the webhooks of AKS: %w", err)
	}
	endpoint := aks.Endpoint{URL: webhooks, CA: certificate}
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

// serveDirectory opens azuresim over TLS, and returns the URL.
func (s *Supervisor) serveDirectory(ctx context.Context, secure *tls.Config) (string, error) {
	ns, err := s.lab.Namespace("azure")
	if err != nil {
		return "", err
	}
	target := &url.URL{Scheme: "http", Host: s.azure.Endpoint()}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host
			r.SetXForwarded()
		},
		Transport: &http.Transport{DialContext: ns.Dial},
	}
	return s.serveTLS(ctx, "azure", s.plan.Cloud(), directoryPort, secure, proxy)
}

// serveTLS serves in one of the networks of the playground until the context ends, and returns the
// URL.
func (s *Supervisor) serveTLS(ctx context.Context, in string, address netip.Addr, port int, secure *tls.Config,
	handler http.Handler) (string, error) {
	ns, err := s.lab.Namespace(in)
	if err != nil {
		return "", err
	}
	listener, err := ns.Listen(ctx, "tcp", net.JoinHostPort(address.String(), strconv.Itoa(port)))
	if err != nil {
		return "", err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		if err := server.Serve(tls.NewListener(listener, secure)); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("a server of AKS has ended", "address", listener.Addr().String(), "error", err)
		}
	}()
	context.AfterFunc(ctx, func() { _ = server.Close() })
	return "https://" + listener.Addr().String(), nil
}

// serveWebhooks starts AKS's webhooks, and returns their URL.
func (s *Supervisor) serveWebhooks(ctx context.Context, client kubernetes.Interface, directory string, secure *tls.Config) (
	string, error) {
	identity := aks.Identity{
		TenantID:      topology.TenantID,
		AuthorityHost: directory,
		ClientID: func(namespace, name string) (string, error) {
			account, err := client.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return "", err
			}
			return account.Annotations["azure.workload.identity/client-id"], nil
		},
	}
	webhooks := aks.Webhooks(identity, func(pool string) []corev1.Taint { return s.poolSettings(pool).Taints })
	return s.serveTLS(ctx, "cp", s.plan.ControlPlane(), webhookPort, secure, webhooks)
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
