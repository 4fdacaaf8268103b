package main

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/azuresim/simtest"
	simulator "github.com/azuredisk-csi/azuredisk/internal/azuresim/server"
	"github.com/azuredisk-csi/azuredisk/internal/config"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/credential"
)

// startAzuresim runs a simulator whose client driver has two secrets, and in which
// attachDetachDataDisks is not enabled.
func startAzuresim(t *testing.T) simtest.Simulator {
	t.Helper()
	return simtest.Start(t, func(o *simulator.Options) {
		o.Auth, o.Clients, o.AttachDetach = "on", []string{"driver=old", "driver=new"}, "region"
	})
}

func TestAccessToAzureIsFollowedAndReportedAsEvents(t *testing.T) {
	azuresim, kube, namespace := startAzuresim(t), apiserver.Client(t), apiserver.Namespace(t)
	azureJSON := func(secret string) []byte {
		raw, err := json.Marshal(map[string]any{
			"tenantId": "t", "subscriptionId": simulator.Defaults().Subscriptions[0], "resourceGroup": "default",
			"location":                "East US",
			"resourceManagerEndpoint": azuresim.URL, "aadClientId": "driver", "aadClientSecret": secret,
			// What V1's file says besides.
			"vmType": "vmss", "cloudProviderBackoff": true, "cloudProviderRateLimitQPS": 6.5, "useInstanceMetadata": true,
			"primaryScaleSetName": "set",
		})
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace,
			Name:      "azure-cloud-provider",
		}, Data: map[string][]byte{"cloud-config": azureJSON("old")},
	}
	if err := kube.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	settings := &config.Controller{}
	settings.AddFlags(pflag.NewFlagSet("test", pflag.ContinueOnError))
	settings.Kubeconfig = apiserver.Kubeconfig(t)
	settings.CloudConfig = filepath.Join(t.TempDir(), "there is none")
	settings.CloudConfigSecretName, settings.CloudConfigSecretNamespace = secret.Name, namespace
	settings.CloudConfigReloadInterval = 50 * time.Millisecond
	settings.Location = "West US"

	ctx, cancel := context.WithCancel(t.Context())
	cloud, credentials, err := newAzure(ctx, settings)
	if err != nil {
		t.Fatal(err)
	}
	if settings.ResourceGroup != "default" || settings.Location != "westus" {
		t.Errorf("the settings are %+v", settings.Cloud)
	}
	t.Setenv("POD_NAMESPACE", namespace)
	t.Setenv("POD_NAME", "controller-0")
	mgr, err := ctrl.NewManager(apiserver.Config(t), ctrl.Options{
		Scheme:  newScheme(),
		Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := followAzure(cloud, credentials)(mgr); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	list := func() {
		t.Helper()
		if _, err := cloud.Disks().List(ctx, provisioner.Scope{
			SubscriptionID: settings.SubscriptionID,
			ResourceGroup:  "default",
		}); err != nil {
			t.Error(err)
		}
	}
	list()
	secret.Data["cloud-config"] = azureJSON("new")
	if err := kube.Update(ctx, secret); err != nil {
		t.Fatal(err)
	}
	waitForEvent(t, kube, namespace, apiv1.ReasonCredentialsTaken, "client secret driver")
	list()
	secret.Data["cloud-config"] = azureJSON("mistyped")
	if err := kube.Update(ctx, secret); err != nil {
		t.Fatal(err)
	}
	waitForEvent(t, kube, namespace, apiv1.ReasonCredentialsRefused, "the previous ones stay in use")
	list()
	attachDisk(t, cloud, newVM(t, azuresim, credentials))
	waitForEvent(t, kube, namespace, apiv1.ReasonAttachByList, "not enabled for the region")
}

func newVM(t *testing.T, azuresim simtest.Simulator, credentials *credential.Credentials) string {
	t.Helper()
	vms, err := armcompute.NewVirtualMachinesClient(simtest.Subscription, credentials, azuresim.ClientOptions())
	if err != nil {
		t.Fatal(err)
	}
	p, err := vms.BeginCreateOrUpdate(t.Context(), "default", "vm-1", armcompute.VirtualMachine{
		Location: to.Ptr("eastus"),
		Properties: &armcompute.VirtualMachineProperties{
			HardwareProfile: &armcompute.HardwareProfile{VMSize: to.Ptr(armcompute.VirtualMachineSizeTypesStandardD2SV3)},
			StorageProfile: &armcompute.StorageProfile{OSDisk: &armcompute.OSDisk{CreateOption: to.Ptr(
				armcompute.DiskCreateOptionTypesFromImage)}},
		},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	vm, err := p.PollUntilDone(t.Context(), &runtime.PollUntilDoneOptions{Frequency: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return *vm.ID
}

func attachDisk(t *testing.T, cloud provisioner.Cloud, vm string) {
	t.Helper()
	disk := "/subscriptions/" + simtest.Subscription + "/resourceGroups/default/providers/Microsoft.Compute/disks/disk-1"
	op, err := cloud.Disks().Create(t.Context(), provisioner.DiskSpec{
		ID:           disk,
		Location:     "eastus",
		SizeBytes:    4 << 30,
		MaxShares:    1,
		DiskSettings: provisioner.DiskSettings{SKUName: "Premium_LRS"},
	})
	if err == nil {
		err = op.Wait(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	op, err = cloud.Attachments().Attach(t.Context(), provisioner.AttachRequest{VMID: vm, DiskID: disk})
	if err == nil {
		err = op.Wait(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// waitForEvent waits for an event on the controller's pod.
func waitForEvent(t *testing.T, kube client.WithWatch, namespace, reason, note string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	watch, err := kube.Watch(ctx, &eventsv1.EventList{}, client.InNamespace(namespace))
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	for seen := range watch.ResultChan() {
		event, ok := seen.Object.(*eventsv1.Event)
		if ok && event.Reason == reason && event.Regarding.Kind == "Pod" && event.Regarding.Name == "controller-0" &&
			strings.Contains(event.Note, note) {
			if strings.Contains(event.Note, "mistyped") {
				t.Errorf("the event tells the secret: %s", event.Note)
			}
			return
		}
	}
	t.Errorf("no event %s that says %q", reason, note)
}

func TestTheFileThatAzureCredentialFileNames(t *testing.T) {
	t.Setenv("AZURE_CREDENTIAL_FILE", "/etc/kubernetes/cloud.conf")
	for args, want := range map[string]string{
		"":                     "/etc/kubernetes/cloud.conf",
		"--cloud-config=/mine": "/mine",
		"--cloud-config=":      "",
	} {
		cmd := newControllerCommand()
		settings := &config.Cloud{}
		cmd.ResetFlags()
		settings.AddFlags(cmd.Flags())
		if err := cmd.ParseFlags(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		setCredentialFile(cmd, settings)
		if settings.CloudConfig != want {
			t.Errorf("with %q: %q, want %q", args, settings.CloudConfig, want)
		}
	}
}
