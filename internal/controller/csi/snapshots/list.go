package snapshots

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/pagetoken"
	"github.com/azuredisk-csi/azuredisk/internal/parameters/snapshotparams"
	"github.com/azuredisk-csi/azuredisk/internal/rpc/status"
	"github.com/azuredisk-csi/azuredisk/internal/volumehandle"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// +kubebuilder:rbac:groups=snapshot.storage.k8s.io,resources=volumesnapshotcontents,verbs=list

// ListSnapshots lists the snapshots that Azure has, of every origin: the snapshot of an ID, the
// snapshots of a volume, or all snapshots in the resource groups that this cluster uses: its own,
// the groups of the driver's volumes and the groups that VolumeSnapshotContents name. The list does
// not contain a snapshot whose content is not fixed yet, and a local snapshot that will be copied to
// another region.
func (s *Snapshotter) ListSnapshots(ctx context.Context, request *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	ctx, cancel := s.Bound(ctx)
	defer cancel()
	page := pagetoken.Page{
		Of:            "snapshots",
		StartingToken: request.GetStartingToken(),
		MaxEntries:    request.GetMaxEntries(),
	}
	if source := request.GetSourceVolumeId(); source != "" {
		page.Of += " of " + strings.ToLower(source)
	}
	var found []provisioner.Snapshot
	var err error
	if request.GetSnapshotId() != "" {
		page.Of += " " + strings.ToLower(request.GetSnapshotId())
		found, err = s.snapshotByID(ctx, request)
	} else {
		found, err = s.snapshotsOf(ctx, request, page)
	}
	if err != nil {
		return nil, status.From(err)
	}
	found, next, err := pagetoken.Cut(page, found, snapshotOrder)
	if err != nil {
		return nil, status.From(err)
	}
	response := &csi.ListSnapshotsResponse{NextToken: next}
	for _, f := range found {
		entry := describeSnapshot(f, f.ID, sourceOf(f))
		if request.GetSnapshotId() != "" {
			entry.SnapshotId = request.GetSnapshotId() // in the caller's spelling
		}
		response.Entries = append(response.Entries, &csi.ListSnapshotsResponse_Entry{Snapshot: entry})
	}
	return response, nil
}

func snapshotOrder(s provisioner.Snapshot) string { return strings.ToLower(s.ID) }

// sourceOf returns the ID of a snapshot's volume; "" if the snapshot is not of a disk.
func sourceOf(found provisioner.Snapshot) string {
	parts := strings.Split(found.Tags[tagSourceDisk], "/")
	if len(parts) == 3 {
		return volumehandle.Handle{
			SubscriptionID: parts[0],
			ResourceGroup:  parts[1],
			DiskName:       parts[2],
		}.String()
	}
	if _, err := volumehandle.Parse(found.SourceID); err != nil {
		return ""
	}
	return found.SourceID
}

// listable reports whether a list may contain a snapshot, and whether it is of the requested
// source, if the request names one.
func listable(found provisioner.Snapshot, source string) bool {
	return found.Cut && found.Tags[tagCopyOf] == "" && (source == "" || strings.EqualFold(sourceOf(found), source))
}

func (s *Snapshotter) snapshotByID(ctx context.Context, request *csi.ListSnapshotsRequest) ([]provisioner.Snapshot, error) {
	handle, ok := snapshotparams.ParseID(request.GetSnapshotId(), s.SubscriptionID, s.ResourceGroup)
	if !ok {
		return nil, nil
	}
	found, err := s.read(ctx, handle.String())
	if err != nil || !listable(found, request.GetSourceVolumeId()) {
		return nil, err
	}
	return []provisioner.Snapshot{found}, nil
}

// snapshotsOf reads the resource groups in the order of the list, from the one with which the page
// begins until the page is full.
func (s *Snapshotter) snapshotsOf(ctx context.Context, request *csi.ListSnapshotsRequest,
	page pagetoken.Page) ([]provisioner.Snapshot, error) {
	after, err := pagetoken.Decode(page.Of, page.StartingToken)
	if err != nil {
		return nil, err
	}
	source := request.GetSourceVolumeId()
	if _, err := volumehandle.Parse(source); source != "" && err != nil {
		return nil, nil
	}
	scopes, err := s.snapshotScopes(ctx, source)
	if err != nil {
		return nil, err
	}
	var found []provisioner.Snapshot
	fresh := 0
	for _, scope := range scopes {
		prefix := scopePrefix(scope)
		if prefix < after && !strings.HasPrefix(after, prefix) {
			continue // it ends before the page begins
		}
		all, err := s.Snapshots.List(ctx, scope)
		if errors.Is(err, provisioner.NotFound) {
			continue // the resource group was deleted
		}
		if err != nil {
			return nil, fmt.Errorf("list snapshots: %w", err)
		}
		for _, f := range all {
			if listable(f, source) && snapshotOrder(f) > after {
				found, fresh = append(found, f), fresh+1
			}
		}
		if page.MaxEntries > 0 && fresh > int(page.MaxEntries) {
			break
		}
	}
	return found, nil
}

// scopePrefix is the beginning of the IDs of a resource group's snapshots. No other group has it.
func scopePrefix(scope provisioner.Scope) string {
	return strings.ToLower("/subscriptions/" + scope.SubscriptionID + "/resourceGroups/" + scope.ResourceGroup + "/")
}

// snapshotScopes returns the resource groups where snapshots of this cluster may be, in the order
// of their snapshots' IDs.
func (s *Snapshotter) snapshotScopes(ctx context.Context, source string) ([]provisioner.Scope, error) {
	scopes := map[string]provisioner.Scope{}
	add := func(subscription, group string) {
		scope := provisioner.Scope{SubscriptionID: subscription, ResourceGroup: group}
		if subscription != "" && group != "" {
			scopes[scopePrefix(scope)] = scope
		}
	}
	add(s.SubscriptionID, s.ResourceGroup)
	if handle, err := volumehandle.Parse(source); err == nil {
		add(handle.SubscriptionID, handle.ResourceGroup)
	}
	var volumes apiv1.AzVolumeList
	if err := s.Client.List(ctx, &volumes, client.InNamespace(s.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list AzVolumes: %w", err)
	}
	for i := range volumes.Items {
		add(volumes.Items[i].Spec.Disk.SubscriptionID, volumes.Items[i].Spec.Disk.ResourceGroup)
	}
	handles, err := s.snapshotHandles(ctx)
	if err != nil {
		return nil, err
	}
	for _, id := range handles {
		if handle, ok := snapshotparams.ParseID(id, s.SubscriptionID, s.ResourceGroup); ok {
			add(handle.SubscriptionID, handle.ResourceGroup)
		}
	}
	ordered := make([]provisioner.Scope, 0, len(scopes))
	for _, scope := range scopes {
		ordered = append(ordered, scope)
	}
	slices.SortFunc(ordered, func(a, b provisioner.Scope) int { return strings.Compare(scopePrefix(a), scopePrefix(b)) })
	return ordered, nil
}

// snapshotHandles returns the snapshots that VolumeSnapshotContents name. Their kind is no part of
// Kubernetes; if it is not installed, there are none.
func (s *Snapshotter) snapshotHandles(ctx context.Context) ([]string, error) {
	contents := &unstructured.UnstructuredList{}
	contents.SetGroupVersionKind(schema.GroupVersionKind{
		Group:   "snapshot.storage.k8s.io",
		Version: "v1",
		Kind:    "VolumeSnapshotContentList",
	})
	err := s.Reader.List(ctx, contents)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list VolumeSnapshotContents: %w", err)
	}
	var handles []string
	for i := range contents.Items {
		content := contents.Items[i].Object
		if driver, _, _ := unstructured.NestedString(content, "spec", "driver"); !strings.EqualFold(driver, s.DriverName) {
			continue
		}
		for _, path := range [][]string{{"status", "snapshotHandle"}, {"spec", "source", "snapshotHandle"}} {
			if handle, _, _ := unstructured.NestedString(content, path...); handle != "" {
				handles = append(handles, handle)
			}
		}
	}
	return handles, nil
}
