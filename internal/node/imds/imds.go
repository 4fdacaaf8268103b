// Package imds finds out which Azure VM this node is: from the instance metadata
// service of the VM, or from the Node object where that does not answer.
//
// The node plug-in asks which VM it is once, when it starts, which disk is at a LUN before it uses a
// device (DiskAt), and every second what Azure has announced for the VM (Events). Nothing here needs
// a credential.
package imds

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan/identity"
	"github.com/azuredisk-csi/azuredisk/internal/plan/resourceid"
)

const (
	apiVersion = "2021-02-01"
	timeout    = 2 * time.Second
	maxAnswer  = 1 << 20
)

// Source is where a node learns which VM it is.
type Source string

// The sources.
const (
	// SourceIMDS is the instance metadata service.
	SourceIMDS Source = "imds"
	// SourceLabels are the labels and the provider ID of the Node object.
	SourceLabels Source = "labels"
)

// Options of Find.
type Options struct {
	// Sources in the order in which they are asked; the first that answers wins.
	Sources []Source
	// Endpoint of the instance metadata service.
	Endpoint string
	// Node reads the Node object; used by SourceLabels only.
	Node func(context.Context) (*corev1.Node, error)
}

// Find returns which VM this node is. Instance metadata is given two seconds: where there is
// none, packets to its address often go nowhere without an answer.
func Find(ctx context.Context, options Options) (apiv1.AzDriverNodeSpec, error) {
	var faults []error
	for _, source := range options.Sources {
		spec, err := ask(ctx, source, options)
		if err == nil {
			return spec, nil
		}
		faults = append(faults, fmt.Errorf("%s: %w", source, err))
	}
	return apiv1.AzDriverNodeSpec{}, fmt.Errorf("find out which VM this node is: %w", errors.Join(faults...))
}

func ask(ctx context.Context, source Source, options Options) (apiv1.AzDriverNodeSpec, error) {
	switch source {
	case SourceIMDS:
		return fromIMDS(ctx, options.Endpoint)
	case SourceLabels:
		node, err := options.Node(ctx)
		if err != nil {
			return apiv1.AzDriverNodeSpec{}, fmt.Errorf("read Node: %w", err)
		}
		return FromNode(node)
	default:
		return apiv1.AzDriverNodeSpec{}, errors.New("no such source")
	}
}

func fromIMDS(ctx context.Context, endpoint string) (apiv1.AzDriverNodeSpec, error) {
	body, err := getOnce(ctx, endpoint, "/metadata/instance/compute")
	if err != nil {
		return apiv1.AzDriverNodeSpec{}, err
	}
	return parse(body)
}

// getOnce reads without a connection that is kept.
func getOnce(ctx context.Context, endpoint, path string) ([]byte, error) {
	client := &http.Client{Transport: &http.Transport{Proxy: nil, DisableKeepAlives: true}}
	return get(ctx, client, endpoint, path, url.Values{"api-version": {apiVersion}, "format": {"json"}})
}

// get reads with a client that uses no proxy, whatever the environment says: the service refuses
// forwarded requests, and a proxy would answer for its own VM.
func get(ctx context.Context, client *http.Client, endpoint, path string, query url.Values) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	target := strings.TrimSuffix(endpoint, "/") + path + "?" + query.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	request.Header.Set("Metadata", "true")
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask for instance metadata: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read instance metadata: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask for instance metadata: %s: %.200s", response.Status, body)
	}
	return body, nil
}

func parse(body []byte) (apiv1.AzDriverNodeSpec, error) {
	var compute struct {
		ResourceID string `json:"resourceId"`
		VMSize     string `json:"vmSize"`
		Location   string `json:"location"`
		Zone       string `json:"zone"`
	}
	if err := json.Unmarshal(body, &compute); err != nil {
		return apiv1.AzDriverNodeSpec{}, fmt.Errorf("parse instance metadata: %w", err)
	}
	if !resourceid.IsVM(compute.ResourceID) {
		return apiv1.AzDriverNodeSpec{},
			fmt.Errorf("instance metadata names no virtual machine: resourceId %q", compute.ResourceID)
	}
	return apiv1.AzDriverNodeSpec{
		VMID:     compute.ResourceID,
		VMSize:   compute.VMSize,
		Location: strings.ToLower(compute.Location),
		Zone:     compute.Zone,
	}, nil
}

// FromNode reads the VM off a Node object as the Azure cloud provider fills it in.
func FromNode(node *corev1.Node) (apiv1.AzDriverNodeSpec, error) {
	spec, ok := identity.SpecOf(node)
	if !ok {
		return apiv1.AzDriverNodeSpec{},
			fmt.Errorf("node %s: providerID %q names no Azure virtual machine", node.Name, node.Spec.ProviderID)
	}
	return spec, nil
}
