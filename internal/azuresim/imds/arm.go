package imds

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

const (
	armVersion  = "2025-04-01"
	maxARMBytes = 4 << 20
	armTimeout  = 30 * time.Second
)

// ErrARM marks an answer of the front end that is not the VM.
var ErrARM = errors.New("ARM request failed")

// ARM is the Source that asks the front end for the VM over ARM.
type ARM struct {
	// ResourceID is the VM's, or that of an instance of a uniform scale set.
	ResourceID string
	// Endpoint is http://host:port or https://host:port; with a Client of DialUnix the host does
	// not matter.
	Endpoint string
	// Client sends the requests. Nil is http.DefaultClient.
	Client *http.Client
	// Token returns the bearer token of a request. Nil sends none.
	Token func() (string, error)
}

// DialUnix returns a client that reaches the front end over a unix socket, from any network
// namespace.
func DialUnix(socket string) *http.Client {
	dialer := net.Dialer{}
	return &http.Client{Timeout: armTimeout, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		},
	}}
}

// Instance gets the VM. Errors: ErrARM for an answer that is not 200, else those of the network.
func (a *ARM) Instance(ctx context.Context) (Instance, error) {
	target := strings.TrimSuffix(a.Endpoint, "/") + a.ResourceID + "?" + url.Values{"api-version": {armVersion}}.Encode()
	//nolint:gosec // the endpoint is a flag of the program
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return Instance{}, fmt.Errorf("make ARM request: %w", err)
	}
	if a.Token != nil {
		token, err := a.Token()
		if err != nil {
			return Instance{}, err
		}
		request.Header.Set("Authorization", "Bearer "+token)
	}
	client := a.Client
	if client == nil {
		client = http.DefaultClient
	}
	answer, err := client.Do(request) //nolint:gosec // as above
	if err != nil {
		return Instance{}, fmt.Errorf("get VM: %w", err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxARMBytes))
	if err != nil {
		return Instance{}, fmt.Errorf("get VM: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		return Instance{}, fmt.Errorf("%w: get %s: %s: %.300s", ErrARM, a.ResourceID, answer.Status, body)
	}
	var vm armVM
	if err := json.Unmarshal(body, &vm); err != nil {
		return Instance{}, fmt.Errorf("parse VM: %w", err)
	}
	return vm.instance()
}

type armVM struct {
	ID       string            `json:"id"`
	Name     string            `json:"name"`
	Location string            `json:"location"`
	Zones    []string          `json:"zones"`
	Tags     map[string]string `json:"tags"`
	SKU      struct {
		Name string `json:"name"`
	} `json:"sku"` // where an instance of a uniform scale set has its size
	Identity   armIdentity `json:"identity"`
	Properties struct {
		VMID            string `json:"vmId"`
		HardwareProfile struct {
			VMSize string `json:"vmSize"`
		} `json:"hardwareProfile"`
		OSProfile struct {
			ComputerName string `json:"computerName"`
		} `json:"osProfile"`
		StorageProfile struct {
			OSDisk    armDisk   `json:"osDisk"`
			DataDisks []armDisk `json:"dataDisks"`
		} `json:"storageProfile"`
		ScaleSet struct {
			ID string `json:"id"`
		} `json:"virtualMachineScaleSet"`
	} `json:"properties"`
}

type armDisk struct {
	LUN          int    `json:"lun"`
	Name         string `json:"name"`
	OSType       string `json:"osType"`
	Caching      string `json:"caching"`
	CreateOption string `json:"createOption"`
	DiskSizeGB   int64  `json:"diskSizeGB"`
	ManagedDisk  struct {
		ID  string `json:"id"`
		SKU string `json:"storageAccountType"`
	} `json:"managedDisk"`
}

type armIdentity struct {
	Type         string `json:"type"`
	PrincipalID  string `json:"principalId"`
	TenantID     string `json:"tenantId"`
	UserAssigned map[string]struct {
		ClientID    string `json:"clientId"`
		PrincipalID string `json:"principalId"`
	} `json:"userAssignedIdentities"`
}

// instance reads the ARM representation. The names of the subscription, the group and a uniform
// scale set are in the ID alone.
func (vm *armVM) instance() (Instance, error) {
	parts := idParts(vm.ID)
	if parts["subscriptions"] == "" || parts["resourcegroups"] == "" {
		return Instance{}, fmt.Errorf("%w: the VM's ID is %q", ErrARM, vm.ID)
	}
	p := vm.Properties
	i := Instance{
		ResourceID:     vm.ID,
		SubscriptionID: parts["subscriptions"],
		ResourceGroup:  parts["resourcegroups"],
		Name:           vm.Name,
		VMID:           p.VMID,
		ScaleSet:       parts["virtualmachinescalesets"],
		Size:           p.HardwareProfile.VMSize,
		Location:       vm.Location,
		OSType:         p.StorageProfile.OSDisk.OSType,
		ComputerName:   p.OSProfile.ComputerName,
		Tags:           vm.Tags,
		OSDisk:         p.StorageProfile.OSDisk.disk(),
		Identities:     vm.Identity.identities(vm.ID),
	}
	if i.ScaleSet == "" {
		i.ScaleSet = idParts(p.ScaleSet.ID)["virtualmachinescalesets"]
	}
	if i.Size == "" {
		i.Size = vm.SKU.Name
	}
	if i.OSType == "" {
		i.OSType = "Linux"
	}
	if len(vm.Zones) > 0 {
		i.Zone = vm.Zones[0]
	}
	for _, disk := range p.StorageProfile.DataDisks {
		i.DataDisks = append(i.DataDisks, disk.disk())
	}
	return i, nil
}

func (d armDisk) disk() Disk {
	return Disk{
		LUN:          d.LUN,
		Name:         d.Name,
		ResourceID:   d.ManagedDisk.ID,
		Caching:      d.Caching,
		CreateOption: d.CreateOption,
		SizeGB:       d.DiskSizeGB,
		SKU:          d.ManagedDisk.SKU,
	}
}

// identities are those that the VM's type says. IDs that the front end does not give are made from
// the names, always the same ones.
func (a armIdentity) identities(vmID string) []Identity {
	var found []Identity
	tenant := orMade(a.TenantID, "tenant")
	if strings.Contains(a.Type, "SystemAssigned") {
		found = append(found, Identity{
			ClientID: madeID("client " + vmID),
			ObjectID: orMade(a.PrincipalID, "principal "+vmID),
			TenantID: tenant,
		})
	}
	if strings.Contains(a.Type, "UserAssigned") {
		for _, id := range slices.Sorted(maps.Keys(a.UserAssigned)) {
			user := a.UserAssigned[id]
			found = append(found, Identity{
				ResourceID: id,
				ClientID:   orMade(user.ClientID, "client "+id),
				ObjectID:   orMade(user.PrincipalID, "principal "+id),
				TenantID:   tenant,
			})
		}
	}
	return found
}

// idParts are the segments of an ARM ID: name by lower-case kind.
func idParts(id string) map[string]string {
	parts := map[string]string{}
	segments := strings.Split(strings.Trim(id, "/"), "/")
	for i := 0; i+1 < len(segments); i += 2 {
		parts[strings.ToLower(segments[i])] = segments[i+1]
	}
	return parts
}
