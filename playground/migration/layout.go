package migration

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"golang.org/x/sync/errgroup"

	"github.com/azuredisk-csi/azuredisk/playground/topology"
)

const (
	namespace   = "migration"
	diskVersion = "2025-01-02"
	vmVersion   = "2025-04-01"
	// firstLUN leaves the lowest to those who attach after V1.
	firstLUN = 8
	// leftAttachment is a VolumeAttachment that V1 leaves.
	leftAttachment = "csi-left-by-v1"
)

// volume is one that V1 leaves. Its claim and its pod have its name.
type volume struct {
	name string
	// disk is the name of the disk, and of the PersistentVolume.
	disk string
	// source is the PersistentVolume's source, and what else its kind has, in YAML.
	source string
	class  string
	policy string
	// shares is the disk's maxShares, 0 for a disk that is not shared.
	shares int
	// inline is for a disk that the pod names itself, without a claim.
	inline bool
}

var volumes = []volume{
	{name: "dynamic", disk: "pvc-5f0e7d1c-6f0b-4a57-9d8f-0e6c0f6b1a01", class: "managed-v1", policy: "Delete", source: `
  csi:
    driver: disk.csi.azure.com
    volumeHandle: %s
    volumeAttributes:
      csi.storage.k8s.io/pv/name: pvc-5f0e7d1c-6f0b-4a57-9d8f-0e6c0f6b1a01
      csi.storage.k8s.io/pvc/name: dynamic
      csi.storage.k8s.io/pvc/namespace: migration
      kind: Managed
      cachingMode: ReadOnly
      requestedsizegib: "4"
      skuname: Premium_LRS
      storage.kubernetes.io/csiProvisionerIdentity: 1700000000000-8081-disk.csi.azure.com`},
	{name: "static", disk: "static-by-hand", policy: "Retain", shares: 2, source: `
  csi:
    driver: disk.csi.azure.com
    volumeHandle: %s
    volumeAttributes: {fsType: ext4, cachingMode: None, maxShares: "2"}`},
	{name: "in-tree", disk: "in-tree-disk", policy: "Retain", source: `
  azureDisk: {kind: Managed, diskName: in-tree-disk, diskURI: %s, cachingMode: ReadWrite, fsType: ext4}`},
	{name: "inline", disk: "inline-disk", policy: "Retain", inline: true},
	{name: "left", disk: "left-attached", policy: "Retain", source: `
  csi:
    driver: disk.csi.azure.com
    volumeHandle: %s
    volumeAttributes: {requestedsizegib: "4", skuname: Premium_LRS}`},
}

func (v volume) id() string {
	return fmt.Sprintf("/subscriptions/%s/resourceGroups/%s/providers/Microsoft.Compute/disks/%s", topology.SubscriptionID,
		topology.ResourceGroup, v.disk)
}

// podSource is the source of a pod's volume, in YAML.
func (v volume) podSource() string {
	if v.inline {
		return fmt.Sprintf("azureDisk: {kind: Managed, diskName: %s, diskURI: %s}", v.disk, v.id())
	}
	return fmt.Sprintf("persistentVolumeClaim: {claimName: %s}", v.name)
}

// content is what V1's pod has written to the volume.
func (v volume) content() string { return "written under V1 to " + v.name }

const volumeManifest = `apiVersion: v1
kind: PersistentVolume
metadata:
  name: {{.Disk}}
  annotations: {pv.kubernetes.io/provisioned-by: disk.csi.azure.com}
  finalizers: [kubernetes.io/pv-protection, external-attacher/disk-csi-azure-com]
spec:
  capacity: {storage: 4Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: {{.Policy}}
  storageClassName: "{{.Class}}"
  claimRef: {apiVersion: v1, kind: PersistentVolumeClaim, namespace: migration, name: {{.Name}}}
  nodeAffinity:
    required:
      nodeSelectorTerms:
        - matchExpressions: [{key: topology.disk.csi.azure.com/zone, operator: In, values: [{{.Zone}}]}]
{{- .Source}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: {{.Name}}, namespace: migration}
spec:
  storageClassName: "{{.Class}}"
  volumeName: {{.Disk}}
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 4Gi}}
`

// clusterManifest is what a user of V1 has besides its release.
const clusterManifest = `apiVersion: v1
kind: Namespace
metadata: {name: migration}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: managed-v1}
provisioner: disk.csi.azure.com
parameters:
  skuName: Premium_LRS
  kind: Managed
  cachingMode: ReadOnly
  fsType: ext4
  enableAsyncAttach: "false"
  perfProfile: Basic
  tags: costcenter=42
reclaimPolicy: Delete
volumeBindingMode: WaitForFirstConsumer
allowVolumeExpansion: true
---
apiVersion: v1
kind: Secret
metadata: {name: azure-cloud-provider, namespace: kube-system}
stringData:
  cloud-config: '{{.AzureJSON}}'
`

// standIn is the chart of the release by which V1 is known.
const standIn = `apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata:
  name: disk.csi.azure.com
  annotations: {csiDriver: v1}
spec: {attachRequired: true, podInfoOnMount: true, fsGroupPolicy: File}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: csi-azuredisk-controller, namespace: kube-system}
spec:
  replicas: 2
  selector: {matchLabels: {app: csi-azuredisk-controller}}
  template:
    metadata: {labels: {app: csi-azuredisk-controller}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: azuredisk, image: {{.Pause}}, imagePullPolicy: Never}]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: csi-azuredisk-node, namespace: kube-system}
spec:
  selector: {matchLabels: {app: csi-azuredisk-node}}
  template:
    metadata: {labels: {app: csi-azuredisk-node}}
    spec:
      terminationGracePeriodSeconds: 1
      nodeSelector: {kubernetes.io/os: linux}
      tolerations: [{operator: Exists}]
      containers: [{name: azuredisk, image: {{.Pause}}, imagePullPolicy: Never}]
`

const attachmentManifest = `apiVersion: storage.k8s.io/v1
kind: VolumeAttachment
metadata:
  name: ` + leftAttachment + `
  annotations: {csi.alpha.kubernetes.io/node-id: {{.Node}}}
  finalizers: [external-attacher/disk-csi-azure-com]
spec:
  attacher: disk.csi.azure.com
  nodeName: {{.Node}}
  source: {persistentVolumeName: left-attached}
`

// where are the nodes that the volumes are used on, in one zone.
func (j *journey) where() (first, second topology.Node) {
	return j.Cluster.Plan.Nodes[0], j.Cluster.Plan.Nodes[2]
}

// layOut takes this driver out of the cluster, and puts there what V1 leaves.
func (j *journey) layOut(ctx context.Context) error {
	if err := j.uninstall(ctx); err != nil {
		return err
	}
	_, azureJSON, err := j.Cluster.DriverValues(ctx)
	if err != nil {
		return err
	}
	credential, err := json.Marshal(azureJSON)
	if err != nil {
		return err
	}
	if err := j.applyTemplate(ctx, clusterManifest, map[string]string{"AzureJSON": string(credential)}); err != nil {
		return err
	}
	group, inGroup := errgroup.WithContext(ctx)
	group.Go(func() error { return j.installStandIn(inGroup) })
	for i, v := range volumes {
		group.Go(func() error {
			if err := j.layOutVolume(inGroup, v, firstLUN+i); err != nil {
				return fmt.Errorf("lay out the volume %s: %w", v.name, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, v := range volumes {
		if j.before[v.name], err = j.disk(ctx, v); err != nil {
			return err
		}
	}
	first, _ := j.where()
	if err := j.applyTemplate(ctx, attachmentManifest, map[string]string{"Node": first.Name}); err != nil {
		return err
	}
	status := fmt.Sprintf(`{"status":{"attached":true,"attachmentMetadata":{"LUN":"%d"}}}`, firstLUN+len(volumes)-1)
	_, err = j.kubectl(ctx, "patch", "volumeattachment", leftAttachment, "--subresource=status", "--type=merge", "--patch",
		status)
	return err
}

// uninstall removes what a cluster of V1's does not have.
func (j *journey) uninstall(ctx context.Context) error {
	installed, err := j.Cluster.DriverInstalled(ctx)
	if err != nil {
		return err
	}
	if installed {
		if err := j.Cluster.UninstallDriver(ctx); err != nil {
			return fmt.Errorf("uninstall this driver, so that the cluster is V1's: %w", err)
		}
	}
	_, err = j.kubectl(ctx, "delete", "--ignore-not-found", "--wait", "namespace/azure-disk-csi",
		"customresourcedefinition/azvolumes.disk.csi.azure.com",
		"customresourcedefinition/azvolumeattachments.disk.csi.azure.com",
		"customresourcedefinition/azdrivernodes.disk.csi.azure.com")
	return err
}

// layOutVolume makes a disk with a filesystem and a file on it, and the PersistentVolume and claim
// of it, unless it is used inline. The last volume is left attached.
func (j *journey) layOutVolume(ctx context.Context, v volume, lun int) error {
	type object = map[string]any
	node, _ := j.where()
	properties := object{
		"diskSizeGB":          4,
		"creationData":        object{"createOption": "Empty"},
		"networkAccessPolicy": "DenyAll",
		"publicNetworkAccess": "Disabled",
	}
	if v.shares > 0 {
		properties["maxShares"] = v.shares
	}
	err := j.arm.Put(ctx, v.id(), diskVersion, object{
		"location": topology.Region,
		"zones":    []string{node.Zone},
		"sku":      object{"name": "Premium_LRS"},
		"tags": object{
			"k8s-azure-created-by":                    "kubernetes-azure-dd",
			"kubernetes.io-created-for-pv-name":       v.disk,
			"kubernetes.io-created-for-pvc-name":      v.name,
			"kubernetes.io-created-for-pvc-namespace": namespace,
		},
		"properties": properties,
	})
	if err != nil {
		return fmt.Errorf("make the disk: %w", err)
	}
	err = j.arm.Post(ctx, node.ResourceID(), "attachDetachDataDisks", vmVersion, object{"dataDisksToAttach": []object{{
		"diskId": v.id(),
		"lun":    lun,
	}}})
	if err != nil {
		return fmt.Errorf("attach the disk: %w", err)
	}
	err = j.onNode(ctx, node.Name, fmt.Sprintf(`disk=/dev/disk/azure/data/by-lun/%d
mkfs.ext4 -q -F -m0 "$disk"
folder=$(mktemp -d)
mount "$disk" "$folder"
printf '%%s' '%s' >"$folder/file"
umount "$folder"
rmdir "$folder"`, lun, v.content()))
	if err != nil {
		return fmt.Errorf("write to the disk: %w", err)
	}
	if v.name != "left" {
		err = j.arm.Post(ctx, node.ResourceID(), "attachDetachDataDisks", vmVersion,
			object{"dataDisksToDetach": []object{{"diskId": v.id()}}})
		if err != nil {
			return fmt.Errorf("detach the disk: %w", err)
		}
	}
	if v.inline {
		return nil
	}
	return j.applyTemplate(ctx, volumeManifest, map[string]string{
		"Name": v.name, "Disk": v.disk, "Policy": v.policy, "Class": v.class, "Zone": node.ZoneLabel(),
		"Source": fmt.Sprintf(v.source, v.id()),
	})
}

func (j *journey) installStandIn(ctx context.Context) error {
	chart := filepath.Join(j.dir, "v1")
	if err := os.MkdirAll(filepath.Join(chart, "templates"), 0o755); err != nil {
		return err
	}
	text := strings.ReplaceAll(standIn, "{{.Pause}}", j.Cluster.Options.Pause.Ref)
	for name, content := range map[string]string{
		"Chart.yaml": "apiVersion: v2\nname: azuredisk-csi-driver\nversion: 1.0.0\n", "templates/v1.yaml": text,
	} {
		if err := os.WriteFile(filepath.Join(chart, name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	return j.shell(ctx, "helm install azuredisk-csi-driver ./v1 --namespace kube-system --wait --timeout 3m")
}

func (j *journey) applyTemplate(ctx context.Context, text string, values map[string]string) error {
	var manifest strings.Builder
	if err := template.Must(template.New("manifest").Parse(text)).Execute(&manifest, values); err != nil {
		return err
	}
	return j.apply(ctx, manifest.String())
}
