package index

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
)

// BenchmarkFill fills the cache with the attachments of a cluster of 5,000 nodes, from a server
// that has the text of its answers ready. The processor time is that of the client, and of the
// server for copying the text.
func BenchmarkFill(b *testing.B) {
	const attachments = 60000
	log.SetLogger(logr.Discard())
	config := attachmentServer(b, attachments)
	for name, newCache := range map[string]cache.NewCacheFunc{"watch": cache.New, "list": NewCache(apiv1.DefaultNamespace)} {
		b.Run(name, func(b *testing.B) {
			var cpu time.Duration
			var kept, allocated uint64
			for b.Loop() {
				ctx, stop := context.WithCancel(b.Context())
				options := CacheOptions(apiv1.DefaultNamespace)
				options.Scheme, options.Mapper = k8sruntime.NewScheme(), meta.NewDefaultRESTMapper(nil)
				if err := apiv1.AddToScheme(options.Scheme); err != nil {
					b.Fatal(err)
				}
				for _, kind := range []string{"AzVolumeAttachment", "AzVolumeAttachmentList"} {
					options.Mapper.(*meta.DefaultRESTMapper).Add(apiv1.GroupVersion.WithKind(kind), meta.RESTScopeNamespace)
				}
				options.ByObject = map[client.Object]cache.ByObject{&apiv1.AzVolumeAttachment{}: own(options)}
				before, began := memory(), processorTime(b)
				objects, err := newCache(config, options)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := objects.GetInformer(ctx, &apiv1.AzVolumeAttachment{}, cache.BlockUntilSynced(false)); err != nil {
					b.Fatal(err)
				}
				ended := make(chan error, 1)
				go func() { ended <- objects.Start(ctx) }()
				if !objects.WaitForCacheSync(ctx) {
					b.Fatal("the cache is not filled")
				}
				cpu += processorTime(b) - began
				allocated += memory().TotalAlloc - before.TotalAlloc
				runtime.GC()
				kept += memory().HeapAlloc - before.HeapAlloc
				stop()
				if err := <-ended; err != nil {
					b.Fatal(err)
				}
				runtime.KeepAlive(objects)
				objects = nil
				runtime.GC()
			}
			each := float64(b.N) * attachments
			b.ReportMetric(float64(cpu.Microseconds())/each, "µs-CPU/attachment")
			b.ReportMetric(float64(allocated)/each, "B-allocated/attachment")
			b.ReportMetric(float64(kept)/each, "B-kept/attachment")
		})
	}
}

func own(options cache.Options) cache.ByObject {
	for kind, by := range options.ByObject {
		if _, is := kind.(*apiv1.AzVolumeAttachment); is {
			return by
		}
	}
	return cache.ByObject{}
}

func memory() (m runtime.MemStats) {
	runtime.ReadMemStats(&m)
	return m
}

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// attachmentServer answers every list and watch with as many attachments.
func attachmentServer(b *testing.B, attachments int) *rest.Config {
	b.Helper()
	var list, watch bytes.Buffer
	list.WriteString(`{"apiVersion":"disk.csi.azure.com/v1","items":[`)
	for i := range attachments {
		text, err := json.Marshal(filledAttachment(i))
		if err != nil {
			b.Fatal(err)
		}
		if i > 0 {
			list.WriteByte(',')
		}
		list.Write(text)
		fmt.Fprintf(&watch, "{\"type\":\"ADDED\",\"object\":%s}\n", text)
	}
	list.WriteString(`],"kind":"AzVolumeAttachmentList","metadata":{"resourceVersion":"7"}}`)
	watch.WriteString(`{"type":"BOOKMARK","object":{"apiVersion":"disk.csi.azure.com/v1","kind":"AzVolumeAttachment",` +
		`"metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}}}}` + "\n")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Query().Get("watch") == "":
			_, _ = w.Write(list.Bytes())
			return
		case r.URL.Query().Get("sendInitialEvents") != "":
			_, _ = w.Write(watch.Bytes())
		}
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	b.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return &rest.Config{Host: server.URL}
}

func filledAttachment(i int) *apiv1.AzVolumeAttachment {
	volume, node, now := fmt.Sprintf("pvc-%08d-a9ce86123e", i/3), fmt.Sprintf("aks-nodepool1-%06d",
		(i/12+i%3)%5000), metav1.Unix(1800000000, 0)
	managed := func(fields, subresource string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{
			Manager:     "azuredisk",
			Operation:   metav1.ManagedFieldsOperationUpdate,
			APIVersion:  apiv1.GroupVersion.String(),
			Time:        &now,
			FieldsType:  "FieldsV1",
			FieldsV1:    metav1.NewFieldsV1(fields),
			Subresource: subresource,
		}
	}
	lun := int32(i % 12)
	return &apiv1.AzVolumeAttachment{
		TypeMeta: metav1.TypeMeta{APIVersion: apiv1.GroupVersion.String(), Kind: "AzVolumeAttachment"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         apiv1.DefaultNamespace,
			Name:              apiv1.AttachmentName(volume, node),
			UID:               "a5c7b0cf-ff8e-58b2-a509-57e1e747acad",
			ResourceVersion:   fmt.Sprint(i),
			Generation:        1,
			CreationTimestamp: now,
			Finalizers:        []string{apiv1.Finalizer},
			ManagedFields: []metav1.ManagedFieldsEntry{
				managed(`{"f:metadata":{"f:finalizers":{".":{},"v:\"disk.csi.azure.com/finalizer\"":{}}},"f:spec":{".":{},"f:epoch":{},"f:nodeName":{},"f:role":{},"f:volumeName":{}}}`, ""),
				managed(`{"f:status":{".":{},"f:conditions":{".":{},"k:{\"type\":\"Attached\"}":{".":{},"f:lastTransitionTime":{},"f:message":{},"f:observedGeneration":{},"f:reason":{},"f:status":{},"f:type":{}}},"f:lun":{},"f:observedGeneration":{},"f:role":{},"f:state":{},"f:vmID":{}}}`, "status"),
			},
		},
		Spec: apiv1.AzVolumeAttachmentSpec{
			VolumeName: volume,
			NodeName:   node,
			Role:       apiv1.RoleReplica,
		},
		Status: apiv1.AzVolumeAttachmentStatus{
			State:              apiv1.AttachmentAttached,
			Role:               apiv1.RoleReplica,
			LUN:                &lun,
			ObservedGeneration: 1,
			VMID:               "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/scale/providers/Microsoft.Compute/virtualMachines/" + node,
			Conditions: []metav1.Condition{{
				Type:               "Attached",
				Status:             metav1.ConditionTrue,
				Reason:             "Attached",
				ObservedGeneration: 1,
				LastTransitionTime: now,
			}},
		},
	}
}
