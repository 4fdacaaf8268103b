package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/config"
	"github.com/azuredisk-csi/azuredisk/internal/version"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure"
	"github.com/azuredisk-csi/azuredisk/provisioner/azure/credential"
)

// setCredentialFile takes the path from AZURE_CREDENTIAL_FILE, unless a flag sets it.
func setCredentialFile(cmd *cobra.Command, settings *config.Cloud) {
	if path, ok := config.Environment("AZURE_CREDENTIAL_FILE"); ok && path != "" && !cmd.Flags().Changed("cloud-config") {
		settings.CloudConfig = path
	}
}

// newAzure makes the client of Azure and its credentials, and takes the settings that no flag sets
// from azure.json.
func newAzure(ctx context.Context, settings *config.Controller) (*azure.Cloud, *credential.Credentials, error) {
	source, err := cloudSource(settings)
	if err != nil {
		return nil, nil, err
	}
	credentials, err := credential.Open(ctx, credential.Options{
		Source:   source,
		Interval: settings.CloudConfigReloadInterval,
		Metrics:  ctrlmetrics.Registry,
		Logger:   ctrl.Log.WithName("credentials"),
	})
	if err != nil {
		return nil, nil, fmt.Errorf("bad configuration: cloud-config: %w", err)
	}
	file := credentials.Config()
	settings.SubscriptionID, settings.ResourceGroup, settings.Location = file.SubscriptionID, file.ResourceGroup, file.Location
	prefix := settings.CustomUserAgent
	if prefix == "" {
		prefix = file.UserAgent
	}
	cloud, err := azure.New(ctx, azure.Options{
		Credential:      credentials,
		Transport:       credentials,
		Cloud:           credentials.Cloud(),
		SubscriptionID:  settings.SubscriptionID,
		EdgeZone:        file.ExtendedLocationName,
		Metrics:         ctrlmetrics.Registry,
		Logger:          ctrl.Log.WithName("azure"),
		UserAgent:       "azuredisk/" + version.Version,
		UserAgentPrefix: prefix,
		UserAgentSuffix: settings.UserAgentSuffix,
	})
	if err != nil {
		return nil, nil, err
	}
	credentials.OnChange(func(change credential.Change) {
		if !change.Refused {
			cloud.Renew()
		}
	})
	return cloud, credentials, nil
}

// cloudSource is where azure.json is: in a Secret, in a file if there is no Secret, or nowhere.
func cloudSource(settings *config.Controller) (credential.Source, error) {
	source := credential.Source{}
	if settings.CloudConfig != "" {
		source = credential.FileSource(settings.CloudConfig, config.Environment)
	}
	source.Env, source.CAFile = config.Environment, settings.CloudCAFile
	source.SubscriptionID = settings.SubscriptionID
	source.ResourceGroup = settings.ResourceGroup
	source.Location = settings.Location
	if settings.CloudConfigSecretName == "" {
		return source, nil
	}
	cfg, err := restConfig(&settings.Common)
	if err != nil {
		return credential.Source{}, err
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return credential.Source{}, fmt.Errorf("make a client for the Secret with the cloud configuration: %w", err)
	}
	name := "Secret " + settings.CloudConfigSecretNamespace + "/" + settings.CloudConfigSecretName
	source.Name = name
	source.Read = func(ctx context.Context) ([]byte, error) {
		secret, err := client.CoreV1().Secrets(settings.CloudConfigSecretNamespace).Get(ctx, settings.CloudConfigSecretName,
			metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) && settings.CloudConfig != "":
			return os.ReadFile(settings.CloudConfig)
		case err != nil:
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		data, ok := secret.Data[settings.CloudConfigSecretKey]
		if !ok {
			return nil, fmt.Errorf("%s has no key %q", name, settings.CloudConfigSecretKey)
		}
		return data, nil
	}
	return source, nil
}

// followAzure adds the credentials to the manager, which follows their changes. Changes of the
// credentials, and of the way in which disks are attached, are events on this pod.
func followAzure(cloud *azure.Cloud, credentials *credential.Credentials) func(ctrl.Manager) error {
	return func(mgr ctrl.Manager) error {
		namespace, _ := config.Environment("POD_NAMESPACE")
		name, _ := config.Environment("POD_NAME")
		if namespace != "" && name != "" {
			recorder := mgr.GetEventRecorder("azuredisk-azure")
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
			credentials.OnChange(func(change credential.Change) {
				kind, reason := corev1.EventTypeNormal, apiv1.ReasonCredentialsTaken
				if change.Refused {
					kind, reason = corev1.EventTypeWarning, apiv1.ReasonCredentialsRefused
				}
				recorder.Eventf(pod, nil, kind, reason, "SignIn", "%s", change.Message)
			})
			cloud.OnAttachByList(func(kind string, refusal error) {
				recorder.Eventf(pod, nil, corev1.EventTypeWarning, apiv1.ReasonAttachByList, "Attach",
					"Azure refuses attachDetachDataDisks for %s, so that disks are attached and detached by updates of the VM's list: %v",
					kind, refusal)
			})
		}
		if err := mgr.Add(credentials); err != nil {
			return fmt.Errorf("add the credentials: %w", err)
		}
		return nil
	}
}
