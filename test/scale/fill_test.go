package scale

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
)

// A sample is an object as the API server has stored it. The other objects of its kind are copies
// of its bytes with other names, written to etcd directly: the API server would take an hour for
// what etcd takes in a minute. All names have a fixed length, so that this works in every encoding.
type sample struct {
	key   string
	value []byte
	uid   string
}

// etcd is etcd's JSON gateway.
type etcd struct{ url string }

type keyValue struct {
	Key   string `json:"key"`
	Value string `json:"value,omitempty"`
}

func (e etcd) call(ctx context.Context, method string, request, response any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url+"/v3/kv/"+method, bytes.NewReader(body))
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(post)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd %s: %s: %s (%w)", method, answer.Status, raw, err)
	}
	return json.Unmarshal(raw, response)
}

func (e etcd) get(ctx context.Context, key string) ([]byte, error) {
	var answer struct{ Kvs []keyValue }
	if err := e.call(ctx, "range", keyValue{Key: base64.StdEncoding.EncodeToString([]byte(key))}, &answer); err != nil {
		return nil, err
	}
	if len(answer.Kvs) != 1 {
		return nil, fmt.Errorf("etcd has %d values of %s, expected 1", len(answer.Kvs), key)
	}
	return base64.StdEncoding.DecodeString(answer.Kvs[0].Value)
}

// put writes key-value pairs in one transaction. etcd allows 128 in one.
func (e etcd) put(ctx context.Context, pairs []keyValue) error {
	type operation struct {
		RequestPut keyValue `json:"requestPut"`
	}
	var request struct {
		Success []operation `json:"success"`
	}
	for _, p := range pairs {
		request.Success = append(request.Success, operation{p})
	}
	return e.call(ctx, "txn", request, &struct{}{})
}

func (e etcd) remove(ctx context.Context, key string) error {
	return e.call(ctx, "deleterange", keyValue{Key: base64.StdEncoding.EncodeToString([]byte(key))}, &struct{}{})
}

// removeAll removes all keys that begin with a prefix, which does not end in 0xff.
func (e etcd) removeAll(ctx context.Context, prefix string) error {
	end := []byte(prefix)
	end[len(end)-1]++
	var request struct {
		Key      string `json:"key"`
		RangeEnd string `json:"range_end"`
	}
	request.Key, request.RangeEnd = base64.StdEncoding.EncodeToString([]byte(prefix)), base64.StdEncoding.EncodeToString(end)
	return e.call(ctx, "deleterange", request, &struct{}{})
}

// samples are the objects of one node and its volumes.
type samples struct {
	node, driverNode, pod       sample
	claim, persistentVolume, av sample
	attachments                 [replicas + 1]sample
	rest                        []sample // of the nodes that have its replicas
}

func volumesOf(node int) []int {
	all := make([]int, volumesPerNode)
	for k := range all {
		all[k] = node*volumesPerNode + k
	}
	return all
}

func sampleVolumes() []int {
	all := make([]int, volumesPerNode)
	for k := range all {
		all[k] = sampleVolume + k
	}
	return all
}

// filler writes the cluster.
type filler struct {
	*cluster
	kube client.WithWatch
	etcd etcd
	// machines are those of the first nodes, which can lose their power.
	machines []*machine
}

// store writes an object through the API server, with its status, and returns how it is stored.
func (f *filler) store(t testing.TB, o client.Object, prefix string) sample {
	t.Helper()
	ctx := t.Context()
	wanted := o.DeepCopyObject().(client.Object)
	must(t, f.kube.Create(ctx, o))
	wanted.SetResourceVersion(o.GetResourceVersion())
	wanted.SetUID(o.GetUID())
	switch w := wanted.(type) {
	case *apiv1.AzDriverNode:
		w.Status.ReportDigest = digest(string(w.UID), sampleVolumes())
	case *apiv1.AzVolume: // a node of this cluster has used the disk
		w.Status.ConfirmedUID = w.UID
	case *apiv1.AzVolumeAttachment: // a status of another UID is one that was restored
		w.Status.UID = w.UID
	}
	if n, ok := wanted.(*corev1.Node); ok { // admission taints every new node as not ready
		status := n.Status.DeepCopy()
		must(t, f.kube.Update(ctx, n))
		n.Status = *status
	}
	must(t, f.kube.Status().Update(ctx, wanted))
	key := "/registry/" + prefix + "/"
	if o.GetNamespace() != "" {
		key += o.GetNamespace() + "/"
	}
	key += o.GetName()
	value, err := f.etcd.get(ctx, key)
	must(t, err)
	return sample{
		key:   key,
		value: value,
		uid:   string(o.GetUID()),
	}
}

// sample writes the objects of the sample node, and of the nodes with its replicas.
func (f *filler) sample(t testing.TB) samples {
	t.Helper()
	must(t, f.kube.Create(t.Context(), f.class()))
	group := apiv1.GroupVersion.Group
	var s samples
	for distance := range replicas + 1 {
		var volumes []int
		if distance == 0 {
			volumes = sampleVolumes()
		}
		node := f.store(t, f.cluster.node(sampleNode+distance), "minions")
		driverNode := f.store(t, f.cluster.driverNode(sampleNode+distance, volumes), group+"/azdrivernodes")
		if distance == 0 {
			s.node, s.driverNode = node, driverNode
		}
		s.rest = append(s.rest, node, driverNode)
	}
	s.pod = f.store(t, f.cluster.pod(sampleNode, sampleVolumes()), "pods")
	s.rest = append(s.rest, s.pod)
	for k, v := range sampleVolumes() {
		claim := f.cluster.claim(v)
		c := f.store(t, claim, "persistentvolumeclaims")
		pv := f.store(t, f.cluster.persistentVolume(v, claim), "persistentvolumes")
		av := f.store(t, f.cluster.volume(v, sampleNode), group+"/azvolumes")
		if k == 0 {
			s.claim, s.persistentVolume, s.av = c, pv, av
		}
		s.rest = append(s.rest, c, pv, av)
		for distance := range replicas + 1 {
			a := f.store(t, f.cluster.attachment(v, sampleNode+distance, distance), group+"/azvolumeattachments")
			if k == 0 {
				s.attachments[distance] = a
			}
			s.rest = append(s.rest, a)
		}
	}
	return s
}

// fill copies the samples to as many nodes, and deletes the samples.
func (f *filler) fill(t testing.TB, s samples, nodes int) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	const writers, batch = 4, 100
	for w := range writers {
		group.Go(func() error {
			var pairs []keyValue
			flush := func() error {
				defer func() { pairs = pairs[:0] }()
				if len(pairs) == 0 {
					return nil
				}
				return f.etcd.put(ctx, pairs)
			}
			for node := w; node < nodes; node += writers {
				for _, p := range f.copies(s, node, nodes) {
					if pairs = append(pairs, p); len(pairs) == batch {
						if err := flush(); err != nil {
							return err
						}
					}
				}
			}
			return flush()
		})
	}
	must(t, group.Wait())
	for _, r := range s.rest {
		must(t, f.etcd.remove(t.Context(), r.key))
	}
}

// clear removes the cluster's objects.
func (f *filler) clear(t testing.TB) {
	t.Helper()
	ctx, group := context.WithoutCancel(t.Context()), apiv1.GroupVersion.Group
	must(t, f.kube.Delete(ctx, f.class()))
	for _, kind := range []string{"pods", "persistentvolumeclaims", group + "/azdrivernodes", group + "/azvolumes",
		group + "/azvolumeattachments"} {
		must(t, f.etcd.removeAll(ctx, "/registry/"+kind+"/"+f.namespace+"/"))
	}
	for _, kind := range []string{"minions/aks-nodepool1-", "persistentvolumes/pvc-"} {
		must(t, f.etcd.removeAll(ctx, "/registry/"+kind))
	}
}

// copies returns the objects of a node.
func (f *filler) copies(s samples, node, nodes int) []keyValue {
	var names []string // pairs of the sample's and the copy's
	rename := func(from, to string) { names = append(names, from, to) }
	volumes := volumesOf(node)
	for k, v := range sampleVolumes() {
		rename(volumeName(v), volumeName(volumes[k]))
		rename(diskName(v), diskName(volumes[k]))
		rename(uid("filesystem", v), uid("filesystem", volumes[k]))
		rename(uid("staging", v), uid("staging", volumes[k]))
	}
	for distance := range replicas + 1 {
		rename(nodeName(sampleNode+distance), nodeName((node+distance)%nodes))
	}
	rename(podName(sampleNode), podName(node))
	rename(uid("boot", sampleNode), uid("boot", node))
	rename(commonIP, kubeletIP(node))
	rename(s.node.uid, uid("node", node))
	rename(s.driverNode.uid, uid("driverNode", node))
	rename(digest(s.driverNode.uid, sampleVolumes()), digest(uid("driverNode", node), volumes))
	rename(s.pod.uid, uid("pod", node))
	var pairs []keyValue
	ofNode := strings.NewReplacer(names...)
	for _, o := range []sample{s.node, s.driverNode, s.pod} {
		pairs = append(pairs, replaced(ofNode, o))
	}
	for k, v := range volumes {
		// The sample is the first volume's.
		names := []string{volumeName(sampleVolume), volumeName(v), diskName(sampleVolume), diskName(v),
			uid("filesystem", sampleVolume), uid("filesystem", v)}
		for distance := range replicas + 1 {
			names = append(names, nodeName(sampleNode+distance), nodeName((node+distance)%nodes))
			names = append(names, s.attachments[distance].uid, uid(fmt.Sprint("attachment", distance), v))
			names = append(names, fmt.Sprintf(`"lun":%d`, lun(sampleVolume, distance)),
				fmt.Sprintf(`"lun":%d`, lun(sampleVolume+k, distance)))
		}
		names = append(names, s.claim.uid, uid("claim", v), s.persistentVolume.uid, uid("persistentVolume", v), s.av.uid,
			uid("volume", v))
		ofVolume := strings.NewReplacer(names...)
		pairs = append(pairs, replaced(ofVolume, s.claim), replaced(ofVolume, s.persistentVolume), replaced(ofVolume, s.av))
		for _, a := range s.attachments {
			pairs = append(pairs, replaced(ofVolume, a))
		}
	}
	return pairs
}

func replaced(r *strings.Replacer, s sample) keyValue {
	return keyValue{
		Key:   base64.StdEncoding.EncodeToString([]byte(r.Replace(s.key))),
		Value: base64.StdEncoding.EncodeToString([]byte(r.Replace(string(s.value)))),
	}
}

// check reads objects that were copied, through the API server.
func (f *filler) check(t testing.TB, nodes int) {
	t.Helper()
	counts := map[string]int{}
	for _, list := range []client.ObjectList{&corev1.NodeList{}, &corev1.PersistentVolumeList{}, &apiv1.AzDriverNodeList{},
		&apiv1.AzVolumeAttachmentList{}} {
		var n int
		for more := "first"; more != ""; {
			options := &client.ListOptions{Limit: 1000}
			if more != "first" {
				options.Continue = more
			}
			must(t, f.kube.List(t.Context(), list, options))
			n += meta.LenList(list)
			more = list.GetContinue()
		}
		counts[fmt.Sprintf("%T", list)] = n
	}
	want := map[string]int{
		"*v1.NodeList": nodes, "*v1.PersistentVolumeList": nodes * volumesPerNode,
		"*v1.AzDriverNodeList": nodes, "*v1.AzVolumeAttachmentList": nodes * volumesPerNode * (replicas + 1),
	}
	for kind, n := range want {
		if counts[kind] != n {
			t.Fatalf("the API server has %d objects in %s, expected %d", counts[kind], kind, n)
		}
	}
}

func newFiller(t testing.TB, kubeletPort int32) *filler {
	t.Helper()
	config := apiserver.Config(t)
	config.QPS, config.RateLimiter = -1, nil
	kube, err := client.NewWithWatch(config, client.Options{Scheme: apiserver.Scheme(t)})
	must(t, err)
	return &filler{
		cluster: &cluster{namespace: apiserver.Namespace(t), kubeletPort: kubeletPort},
		kube:    kube,
		etcd:    etcd{apiserver.Etcd(t)},
	}
}
