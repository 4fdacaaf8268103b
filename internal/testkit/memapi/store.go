// Package memapi is a small API server in memory, for tests and simulations: fast, deterministic, and
// strict in what the driver's protocol rests on. It keeps resource versions and refuses stale writes,
// separates status from the rest, raises generations, holds back deletions for finalizers, and
// honours preconditions. Random walks on it and on a real server show that both answer the same for
// the driver's kinds; the rules of their definitions, and defaults and admission of Kubernetes'
// kinds, it leaves out.
//
// Every access goes through a Gate, so that a simulation decides when it happens, whether its
// answer arrives, and whether the caller survives it. A Cache is a view of the store that learns of
// changes only when it is told to, and a Live one learns of them by itself.
//
// Objects are stored in the form in which a server returns them: times in whole seconds, and empty
// fields left out. Stored objects are never changed; readers get copies.
package memapi

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Call names one access to the server.
type Call struct {
	// Verb as in "get", "list", "create", "update", "patch", "delete" or "watch"; with "/status"
	// for the subresource.
	Verb string
	// Kind as in "AzVolume"; Name is empty for a list.
	Kind, Name string
}

// String returns the call for people.
func (c Call) String() string { return c.Verb + " " + c.Kind + " " + c.Name }

// Writes reports whether the call may change something.
func (c Call) Writes() bool { return c.Verb != "get" && c.Verb != "list" && c.Verb != "watch" }

// Gate decides about a call: it calls do, or does not, and returns the caller's error.
type Gate func(ctx context.Context, call Call, do func() error) error

// Open is the gate that is open to every call whose context has not ended.
func Open(ctx context.Context, _ Call, do func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return do()
}

// Change is a committed change of an object, the store's At-th. Before is nil for a creation, After
// for a removal.
type Change struct {
	Before, After client.Object
	At            int64
}

// Store is the state of the server. It is safe for concurrent use.
type Store struct {
	scheme *runtime.Scheme
	clock  clock.PassiveClock
	// OnChange, if set, is called for each change, while the store is locked.
	OnChange func(Change)
	// IgnoreVersions makes patches succeed whatever their optimistic lock says, so that a
	// simulation can show that it would notice.
	IgnoreVersions bool

	mu       sync.Mutex
	version  int64
	uids     int64
	kinds    map[reflect.Type]*kind
	watchers []*watcher
	live     []*Live
}

type kind struct {
	name    string
	objects objects
	log     []Change
}

// New makes an empty Store. Times come from c.
func New(scheme *runtime.Scheme, c clock.PassiveClock) *Store {
	return &Store{
		scheme: scheme,
		clock:  c,
		kinds:  map[reflect.Type]*kind{},
	}
}

func (s *Store) kindOf(t reflect.Type) *kind {
	k, ok := s.kinds[t]
	if !ok {
		k = &kind{name: t.Name(), objects: newObjects()}
		s.kinds[t] = k
	}
	return k
}

func typeOf(o client.Object) reflect.Type { return reflect.TypeOf(o).Elem() }

func groupResource(t reflect.Type) schema.GroupResource {
	return schema.GroupResource{Resource: strings.ToLower(t.Name()) + "s"}
}

// Get reads an object.
func (s *Store) Get(key types.NamespacedName, into client.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := typeOf(into)
	stored, ok := s.kindOf(t).objects.byName[key]
	if !ok {
		return apierrors.NewNotFound(groupResource(t), key.Name)
	}
	copyInto(into, stored)
	return nil
}

// Look returns the stored object of the type of example, which must not be changed, or nil.
func (s *Store) Look(example client.Object, key types.NamespacedName) client.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kindOf(typeOf(example)).objects.byName[key]
}

// Peek calls see with each stored object of the type of example, in the order of their names. They
// must not be changed or kept.
func (s *Store) Peek(example client.Object, see func(client.Object)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.kindOf(typeOf(example)).objects.sorted {
		see(o)
	}
}

// Create adds an object; its status is dropped, as a server does.
func (s *Store) Create(o client.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, key := typeOf(o), client.ObjectKeyFromObject(o)
	k := s.kindOf(t)
	if _, exists := k.objects.byName[key]; exists {
		return apierrors.NewAlreadyExists(groupResource(t), key.Name)
	}
	if o.GetResourceVersion() != "" {
		return apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	added := withoutStatus(o)
	s.uids++
	added.SetUID(types.UID("uid-" + strconv.FormatInt(s.uids, 10)))
	added.SetCreationTimestamp(metav1.NewTime(s.clock.Now()))
	added.SetGeneration(1)
	added.SetDeletionTimestamp(nil)
	normalise(added)
	s.commit(k, key, nil, added)
	copyInto(o, added)
	return nil
}

// Update replaces an object, or its status. A resource version that is not the stored one is a
// Conflict; none at all replaces whatever is there, except for custom resources, which need one.
func (s *Store) Update(o client.Object, status bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, stored, err := s.current(o)
	if err != nil {
		return err
	}
	if uid := o.GetUID(); uid != "" && uid != stored.GetUID() {
		return conflict(o)
	}
	switch v := o.GetResourceVersion(); {
	case v == "" && ours(o):
		return invalid(o, field.Invalid(field.NewPath("metadata", "resourceVersion"), v, "must be specified for an update"))
	case v != "" && v != stored.GetResourceVersion():
		return conflict(o)
	}
	return s.replace(k, stored, o, status)
}

func conflict(o client.Object) error {
	return apierrors.NewConflict(groupResource(typeOf(o)), o.GetName(), fmt.Errorf("the object has been modified"))
}

func invalid(o client.Object, why *field.Error) error {
	return apierrors.NewInvalid(schema.GroupKind{Kind: typeOf(o).Name()}, o.GetName(), field.ErrorList{why})
}

func (s *Store) current(o client.Object) (*kind, client.Object, error) {
	k := s.kindOf(typeOf(o))
	stored, ok := k.objects.byName[client.ObjectKeyFromObject(o)]
	if !ok {
		return nil, nil, apierrors.NewNotFound(groupResource(typeOf(o)), o.GetName())
	}
	return k, stored, nil
}

// replace commits wanted in the place of stored, as far as the endpoint may change it, and makes
// wanted the result.
func (s *Store) replace(k *kind, stored, wanted client.Object, status bool) error {
	next, changed := s.next(stored, wanted, status)
	switch {
	case stored.GetDeletionTimestamp() != nil &&
		slices.ContainsFunc(next.GetFinalizers(), func(f string) bool { return !slices.Contains(stored.GetFinalizers(), f) }):
		return invalid(stored, field.Forbidden(field.NewPath("metadata", "finalizers"),
			"no new finalizers can be added if the object is being deleted"))
	case next.GetDeletionTimestamp() != nil && len(next.GetFinalizers()) == 0 && len(stored.GetFinalizers()) > 0:
		s.commit(k, client.ObjectKeyFromObject(stored), stored, nil)
	case !changed:
		next = stored // a write that changes nothing is none
	default:
		s.commit(k, client.ObjectKeyFromObject(stored), stored, next)
	}
	copyInto(wanted, next)
	return nil
}

// next returns the result of writing wanted over stored, and whether it differs. It shares
// unchanged parts with stored.
func (s *Store) next(stored, wanted client.Object, status bool) (next client.Object, changed bool) {
	if status {
		written := onlyStatus(wanted)
		normalise(written)
		next = shallow(stored)
		if s := statusOf(next); s.IsValid() {
			changed = !same(s, statusOf(written))
			s.Set(statusOf(written))
		}
		return next, changed
	}
	next = withoutStatus(wanted)
	normalise(next) // before it shares anything with stored, which readers copy without the store's lock
	next.SetUID(stored.GetUID())
	next.SetCreationTimestamp(stored.GetCreationTimestamp())
	next.SetDeletionTimestamp(stored.GetDeletionTimestamp())
	next.SetGeneration(stored.GetGeneration())
	next.SetResourceVersion(stored.GetResourceVersion())
	changed = specChanged(stored, next)
	if changed {
		next.SetGeneration(stored.GetGeneration() + 1)
	}
	changed = changed || !same(structOf(stored).FieldByName("ObjectMeta"), structOf(next).FieldByName("ObjectMeta"))
	if s := statusOf(next); s.IsValid() {
		s.Set(statusOf(stored))
	}
	return next, changed
}

// Delete removes an object, or marks it as being deleted while it has finalizers, or while its pod
// has not been stopped.
func (s *Store) Delete(o client.Object, options client.DeleteOptions) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.kindOf(typeOf(o))
	stored, ok := k.objects.byName[client.ObjectKeyFromObject(o)]
	if !ok {
		return apierrors.NewNotFound(groupResource(typeOf(o)), o.GetName())
	}
	if p := options.Preconditions; p != nil {
		if (p.UID != nil && *p.UID != stored.GetUID()) ||
			(p.ResourceVersion != nil && *p.ResourceVersion != stored.GetResourceVersion()) {
			return conflict(o)
		}
	}
	waits := len(stored.GetFinalizers()) > 0
	if k.name == "Pod" && (options.GracePeriodSeconds == nil || *options.GracePeriodSeconds > 0) {
		waits = true // until the kubelet has stopped it
	}
	if !waits {
		s.commit(k, client.ObjectKeyFromObject(stored), stored, nil)
		return nil
	}
	if stored.GetDeletionTimestamp() != nil {
		return nil
	}
	next := stored.DeepCopyObject().(client.Object)
	now := metav1.NewTime(s.clock.Now())
	next.SetDeletionTimestamp(&now)
	next.SetGeneration(stored.GetGeneration() + 1)
	normalise(next)
	s.commit(k, client.ObjectKeyFromObject(stored), stored, next)
	return nil
}

// commit is the only function that changes stored objects; after is in the form in which a server
// returns it. The caller holds mu.
func (s *Store) commit(k *kind, key types.NamespacedName, before, after client.Object) {
	s.version++
	if after == nil {
		k.objects.remove(key)
	} else {
		after.SetResourceVersion(strconv.FormatInt(s.version, 10))
		k.objects.set(key, after)
	}
	change := Change{
		Before: before,
		After:  after,
		At:     s.version,
	}
	k.log = append(k.log, change)
	for _, w := range s.watchers {
		w.offer(change)
	}
	for _, l := range s.live {
		l.wake()
	}
	if s.OnChange != nil {
		s.OnChange(change)
	}
}

// watcher passes changes of one kind on.
type watcher struct {
	store   *Store
	of      reflect.Type
	matches func(client.Object) bool
	result  chan watch.Event
}

// watcherBuffer is the number of events that a watcher may have unread. A slower watcher loses its
// watch.
const watcherBuffer = 256

func (s *Store) watch(of reflect.Type, matches func(client.Object) bool) watch.Interface {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &watcher{
		store:   s,
		of:      of,
		matches: matches,
		result:  make(chan watch.Event, watcherBuffer),
	}
	// As an API server does for a watch that begins at no version.
	for _, o := range s.kindOf(of).objects.sorted {
		w.offer(Change{After: o})
	}
	s.watchers = append(s.watchers, w)
	return w
}

func (w *watcher) offer(c Change) {
	event := watch.Event{Type: watch.Modified, Object: c.After}
	of := c.After
	switch {
	case c.After == nil:
		event.Type, event.Object, of = watch.Deleted, c.Before, c.Before
	case c.Before == nil:
		event.Type = watch.Added
	}
	if typeOf(of) != w.of || !w.matches(of) {
		return
	}
	event.Object = of.DeepCopyObject()
	select {
	case w.result <- event:
	default:
	}
}

// Stop implements watch.Interface.
func (w *watcher) Stop() {
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	if i := slices.Index(w.store.watchers, w); i >= 0 {
		w.store.watchers = slices.Delete(w.store.watchers, i, i+1)
		close(w.result)
	}
}

// ResultChan implements watch.Interface.
func (w *watcher) ResultChan() <-chan watch.Event { return w.result }
