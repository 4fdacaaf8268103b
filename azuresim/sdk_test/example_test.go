package sdk_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/azuredisk-csi/azuredisk/azuresim/server"
)

// anyone is a credential for a simulator that runs with --auth=off.
type anyone struct{}

func (anyone) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: "anything", ExpiresOn: time.Now().Add(time.Hour)}, nil
}

// connect returns stock clients that talk to the simulator instead of Azure. Only the endpoint
// differs.
func connect(endpoint string) (*armcompute.ClientFactory, error) {
	options := &arm.ClientOptions{
		ClientOptions: policy.ClientOptions{
			Cloud: cloud.Configuration{Services: map[cloud.ServiceName]cloud.ServiceConfiguration{
				cloud.ResourceManager: {Endpoint: endpoint, Audience: "https://management.azure.com"},
			}},
			InsecureAllowCredentialWithHTTP: true, // the simulator speaks plain HTTP unless it has a certificate
		},
		DisableRPRegistration: true,
	}
	return armcompute.NewClientFactory("00000000-0000-0000-0000-000000000001", anyone{}, options)
}

// A disk is made with the stock SDK on a simulator that runs in the same process.
func Example() {
	dir, err := os.MkdirTemp("", "azuresim")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	o := server.Defaults()
	o.Listen, o.AdminListen, o.StateDir, o.Latency, o.LogLevel = "127.0.0.1:0", "", dir, "fast", "error"
	ctx, cancel := context.WithCancel(context.Background())
	ready, out := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx, o, out, os.Stderr) }()
	var address string
	if _, err := fmt.Fscanf(ready, "azuresim is ready: azure=%s", &address); err != nil {
		log.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, ready) }()

	clients, err := connect("http://" + address)
	if err != nil {
		log.Fatal(err)
	}
	poller, err := clients.NewDisksClient().BeginCreateOrUpdate(ctx, "default", "data", armcompute.Disk{
		Location: to.Ptr("eastus"),
		SKU:      &armcompute.DiskSKU{Name: to.Ptr(armcompute.DiskStorageAccountTypesPremiumLRS)},
		Properties: &armcompute.DiskProperties{
			CreationData: &armcompute.CreationData{CreateOption: to.Ptr(armcompute.DiskCreateOptionEmpty)},
			DiskSizeGB:   to.Ptr[int32](64),
			MaxShares:    to.Ptr[int32](3),
		},
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	disk, err := poller.PollUntilDone(ctx, &runtime.PollUntilDoneOptions{Frequency: time.Second})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(*disk.Name, *disk.Properties.DiskState, *disk.Properties.Tier)
	cancel()
	if err := <-done; err != nil {
		log.Fatal(err)
	}
	// Output: data Unattached P6
}
