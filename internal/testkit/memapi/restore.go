package memapi

import (
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What a server does not offer, and a restore of etcd or a person with access to it does.

// Versions returns every version that there has been of an object, the oldest first; nil for a time
// when there was none. They must not be changed.
func (s *Store) Versions(example client.Object, key types.NamespacedName) []client.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	var versions []client.Object
	for _, c := range s.kindOf(typeOf(example)).log {
		of := c.After
		if of == nil {
			of = c.Before
		}
		if client.ObjectKeyFromObject(of) == key {
			versions = append(versions, c.After)
		}
	}
	return versions
}

// Now is the number of changes that there have been.
func (s *Store) Now() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// Restore writes an object as it is, with its UID, generation and status, and replaces an existing
// one. Only the resource version is a new one.
func (s *Store) Restore(o client.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	restored := o.DeepCopyObject().(client.Object)
	normalise(restored)
	k, key := s.kindOf(typeOf(o)), client.ObjectKeyFromObject(o)
	s.commit(k, key, k.objects.byName[key], restored)
}

// Erase removes an object without regard for finalizers. One that is not there is a success.
func (s *Store) Erase(o client.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, key := s.kindOf(typeOf(o)), client.ObjectKeyFromObject(o)
	if stored, found := k.objects.byName[key]; found {
		s.commit(k, key, stored, nil)
	}
}

// RestoreAll makes the objects of the type of example what they were after a number of changes, as
// Now returned it.
func (s *Store) RestoreAll(example client.Object, at int64) {
	then := newObjects()
	s.mu.Lock()
	k := s.kindOf(typeOf(example))
	for _, c := range k.log {
		switch {
		case c.At > at:
		case c.After == nil:
			then.remove(client.ObjectKeyFromObject(c.Before))
		default:
			then.set(client.ObjectKeyFromObject(c.After), c.After)
		}
	}
	now := slices.Clone(k.objects.sorted)
	s.mu.Unlock()
	for _, o := range now {
		if then.byName[client.ObjectKeyFromObject(o)] == nil {
			s.Erase(o)
		}
	}
	for _, o := range then.sorted {
		if current := s.Look(reflect.New(typeOf(example)).Interface().(client.Object),
			client.ObjectKeyFromObject(o)); current == nil || current.GetResourceVersion() != o.GetResourceVersion() {
			s.Restore(o)
		}
	}
}
