package memapi_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/apiserver"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/memapi"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// The simulation is worth what its API server is. Random walks of accesses, as the driver makes
// them, go to it and to a real one, and both must answer the same: the same errors, the same
// objects, and the same steps at which something was written.
func TestARealServerAnswersTheSame(t *testing.T) {
	const walks, steps = 15, 50
	mem := memapi.NewClient(memapi.New(apiserver.Scheme(t), clock.RealClock{}), memapi.Open, nil)
	namespace := apiserver.Namespace(t)
	for name, k := range kinds(namespace) {
		for seed := range uint64(walks) {
			t.Run(fmt.Sprintf("%s/%d", name, seed), func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 0))
				k := k
				k.name = fmt.Sprintf("%s-%d", strings.ToLower(name), seed)
				w := walk{T: t, kind: k, sides: []*side{{Client: apiserver.Client(t)}, {Client: mem}}}
				for range steps {
					if !w.step(w.choose(random)) {
						return
					}
				}
			})
		}
	}
}

// kind is what is walked on: the driver's own. What a server does beyond the protocol with
// Kubernetes' kinds, their defaults and its admission, the simulation leaves out.
type kind struct {
	name string
	// make returns a new object with a name; change changes its spec, and tell its status, to what
	// a number says. No status is told that only takes something away: of a server's object that
	// has none it leaves an empty one, which is something else on the wire, and the same in Go.
	make   func(name string) client.Object
	change func(o client.Object, to int)
	tell   func(o client.Object, to int)
}

func kinds(namespace string) map[string]kind {
	at := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: name} }
	return map[string]kind{
		"AzVolumeAttachment": {
			make: func(name string) client.Object {
				return &apiv1.AzVolumeAttachment{
					ObjectMeta: at(name),
					Spec:       apiv1.AzVolumeAttachmentSpec{VolumeName: "v", NodeName: "n", Role: apiv1.RoleReplica},
				}
			},
			change: func(o client.Object, to int) { o.(*apiv1.AzVolumeAttachment).Spec.ReadOnly = to%2 == 1 },
			tell: func(o client.Object, to int) {
				s := &o.(*apiv1.AzVolumeAttachment).Status
				s.LUN, s.State, s.Proof = ptr.To(int32(to)), apiv1.AttachmentAttached, nil
				if to%2 == 1 {
					s.Proof = &apiv1.ReleaseProof{
						Type:       apiv1.ProofUnstaged,
						Epoch:      int64(to),
						ProvenTime: metav1.Unix(int64(to), 123456789),
					}
				}
			},
		},
		"AzDriverNode": {
			make: func(name string) client.Object {
				return &apiv1.AzDriverNode{ObjectMeta: at(name), Spec: apiv1.AzDriverNodeSpec{VMID: "/vm"}}
			},
			change: func(o client.Object, to int) { o.(*apiv1.AzDriverNode).Spec.VMID = fmt.Sprintf("/vm/%d", to) },
			tell: func(o client.Object, to int) {
				o.(*apiv1.AzDriverNode).Status.HeartbeatTime = ptr.To(metav1.NewMicroTime(time.Unix(int64(to), 0)))
			},
		},
		"AzVolume": {
			make: func(name string) client.Object {
				v := &apiv1.AzVolume{ObjectMeta: at(name)}
				v.Spec.Origin, v.Spec.Access, v.Spec.CapacityBytes = apiv1.OriginProvisioned, apiv1.AccessSingleNode, 1<<30
				v.Spec.Disk = apiv1.DiskParameters{
					SubscriptionID: "00000000-0000-0000-0000-000000000001",
					ResourceGroup:  "g",
					Name:           name,
					MaxShares:      2,
					CachingMode:    "None",
					DiskSettings:   apiv1.DiskSettings{SKUName: "Premium_LRS"},
				}
				return v
			},
			change: func(o client.Object, to int) { o.(*apiv1.AzVolume).Spec.Disk.ModifiedCachingMode = fmt.Sprint(to) },
			tell: func(o client.Object, to int) {
				o.(*apiv1.AzVolume).Status.Primary = &apiv1.Ownership{NodeName: "n", Epoch: 1, State: apiv1.OwnershipHeld}
				o.(*apiv1.AzVolume).Status.PersistentVolume = fmt.Sprint(to)
			},
		},
	}
}

// neverRead is the age of an object that the test has created itself.
const neverRead = 4

// access is one of both servers.
type access struct {
	verb string
	// age is how many reads ago the object was read that is changed, if it was.
	age    int
	to     int
	locked bool
	// about is what is changed: spec, labels or finalizers.
	about string
}

func (a access) String() string {
	return fmt.Sprintf("%s (%s to %d, object of %d reads ago, locked %v)", a.verb, a.about, a.to, a.age, a.locked)
}

// side is one server, with what was read there so far.
type side struct {
	client.Client
	read []client.Object
}

// outcome is what must be the same.
type outcome struct {
	Error   metav1.StatusReason
	Written bool
	Object  client.Object
}

type walk struct {
	*testing.T
	kind
	sides   []*side
	history []string
}

func (w *walk) choose(r *rand.Rand) access {
	verbs := []string{"create", "update", "update status", "patch", "patch", "patch status", "patch status", "delete"}
	a := access{verb: verbs[r.IntN(len(verbs))], to: r.IntN(3), locked: r.IntN(2) == 0}
	a.about = []string{"spec", "labels", "finalizers"}[r.IntN(3)]
	if r.IntN(3) == 0 {
		a.age = r.IntN(neverRead + 1)
	}
	return a
}

// step makes an access on both sides, and reports whether they agree.
func (w *walk) step(a access) bool {
	w.Helper()
	w.history = append(w.history, a.String())
	var outcomes []outcome
	for _, s := range w.sides {
		outcomes = append(outcomes, w.on(s, a))
	}
	if diff := cmp.Diff(outcomes[0], outcomes[1]); diff != "" {
		w.Errorf("a real server (-) and the simulation's (+) differ after\n%s\n%s", strings.Join(w.history, "\n"), diff)
		return false
	}
	return true
}

func (w *walk) on(s *side, a access) outcome {
	w.Helper()
	before := w.now(s)
	err := w.access(s, a)
	after := w.now(s)
	result := outcome{
		Error:   apierrors.ReasonForError(err),
		Written: version(before) != version(after),
		Object:  comparable(after),
	}
	if err != nil && result.Error == metav1.StatusReasonUnknown {
		w.Fatalf("%s: %v", a, err)
	}
	if after != nil {
		s.read = append(s.read, after)
	}
	return result
}

// now reads the object; nil if there is none.
func (w *walk) now(s *side) client.Object {
	w.Helper()
	o := w.make(w.name)
	err := s.Get(w.Context(), client.ObjectKeyFromObject(o), o)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.Fatal(err)
	}
	return o
}

// access makes an access.
func (w *walk) access(s *side, a access) error {
	ctx := w.Context()
	o := w.make(w.name)
	if n := len(s.read); n > 0 && a.verb != "create" && a.age < neverRead {
		o = s.read[max(0, n-1-a.age)].DeepCopyObject().(client.Object)
	}
	from := o.DeepCopyObject().(client.Object)
	switch {
	case strings.HasSuffix(a.verb, "status"):
		w.tell(o, a.to)
	case a.about == "labels":
		o.SetLabels(map[string]string{"to": fmt.Sprint(a.to)})
	case a.about == "finalizers":
		o.SetFinalizers(slices.Clone([]string{"test/a", "test/b"}[:a.to]))
	default:
		w.change(o, a.to)
	}
	locked, patch := a.locked && from.GetResourceVersion() != "", client.MergeFrom(from)
	switch a.verb {
	case "create":
		w.tell(o, a.to)
		return s.Create(ctx, o)
	case "update":
		return s.Update(ctx, o)
	case "update status":
		return s.Status().Update(ctx, o)
	case "patch":
		if locked {
			return kube.Patch(ctx, s, o, from)
		}
		return s.Patch(ctx, o, patch)
	case "patch status":
		if locked {
			return kube.PatchStatus(ctx, s, o, from)
		}
		return s.Status().Patch(ctx, o, patch)
	}
	var options []client.DeleteOption
	switch {
	case a.locked && o.GetUID() != "":
		options = append(options, client.Preconditions{UID: ptr.To(o.GetUID()), ResourceVersion: ptr.To(o.GetResourceVersion())})
	case a.about == "spec" && o.GetUID() != "":
		options = append(options, client.Preconditions{UID: ptr.To(o.GetUID())})
	}
	return s.Delete(ctx, o, options...)
}

func version(o client.Object) string {
	if o == nil {
		return ""
	}
	return o.GetResourceVersion()
}

// comparable takes away what each server chooses itself.
func comparable(o client.Object) client.Object {
	if o == nil {
		return nil
	}
	o = o.DeepCopyObject().(client.Object)
	o.SetUID(types.UID(""))
	o.SetResourceVersion("")
	o.SetCreationTimestamp(metav1.Time{})
	o.SetManagedFields(nil)
	o.SetDeletionGracePeriodSeconds(nil)
	if o.GetDeletionTimestamp() != nil {
		o.SetDeletionTimestamp(ptr.To(metav1.Unix(0, 0)))
	}
	o.GetObjectKind().SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(""))
	return o
}
