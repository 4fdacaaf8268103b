package reservations

import "slices"

// Type of a reservation, as SCSI numbers them.
type Type uint8

// The types that Azure's shared disks have.
const (
	WriteExclusive                 Type = 1
	ExclusiveAccess                Type = 3
	WriteExclusiveRegistrantsOnly  Type = 5
	ExclusiveAccessRegistrantsOnly Type = 6
	WriteExclusiveAllRegistrants   Type = 7
	ExclusiveAccessAllRegistrants  Type = 8
)

var typeNames = map[Type]string{
	WriteExclusive:                 "Write Exclusive",
	ExclusiveAccess:                "Exclusive Access",
	WriteExclusiveRegistrantsOnly:  "Write Exclusive - Registrants Only",
	ExclusiveAccessRegistrantsOnly: "Exclusive Access - Registrants Only",
	WriteExclusiveAllRegistrants:   "Write Exclusive - All Registrants",
	ExclusiveAccessAllRegistrants:  "Exclusive Access - All Registrants",
}

// String is the name in SPC-4.
func (t Type) String() string { return typeNames[t] }

func (t Type) known() bool { return typeNames[t] != "" }

// allRegistrants reports whether every registered initiator holds the reservation.
func (t Type) allRegistrants() bool {
	return t == WriteExclusiveAllRegistrants || t == ExclusiveAccessAllRegistrants
}

func (t Type) writeExclusive() bool {
	return t == WriteExclusive || t == WriteExclusiveRegistrantsOnly || t == WriteExclusiveAllRegistrants
}

// Registration is one initiator and its key.
type Registration struct {
	Initiator string `json:"initiator"`
	Key       uint64 `json:"key"`
}

// State of a disk. It is a value: the methods that change it return another one.
type State struct {
	// Generation counts the changes of registrations.
	Generation    uint32         `json:"generation"`
	Registrations []Registration `json:"registrations,omitempty"`
	// Type of the reservation; 0 for none.
	Type Type `json:"type,omitempty"`
	// Holder is the initiator that holds the reservation; "" for the types that all registrants
	// hold.
	Holder string `json:"holder,omitempty"`
}

// Allows reports whether the disk lets an initiator read, or write.
func (s State) Allows(initiator string, write bool) bool {
	if s.Type == 0 || s.holds(initiator) || s.Type.writeExclusive() && !write {
		return true
	}
	_, registered := s.key(initiator)
	return registered && s.Type != WriteExclusive && s.Type != ExclusiveAccess
}

// key returns the key of an initiator, and whether it is registered.
func (s State) key(initiator string) (uint64, bool) {
	for _, r := range s.Registrations {
		if r.Initiator == initiator {
			return r.Key, true
		}
	}
	return 0, false
}

func (s State) holds(initiator string) bool {
	if s.Type.allRegistrants() {
		_, registered := s.key(initiator)
		return registered
	}
	return s.Type != 0 && s.Holder == initiator
}

// hasKey reports whether an initiator is registered with the key.
func (s State) hasKey(key uint64) bool {
	return slices.ContainsFunc(s.Registrations, func(r Registration) bool { return r.Key == key })
}

// holderKey is the key with which the reservation is held; 0 if all registrants hold it.
func (s State) holderKey() uint64 {
	key, _ := s.key(s.Holder)
	return key
}

// register gives the initiator the key; 0 removes its registration.
func (s State) register(initiator string, key uint64) State {
	s.Generation++
	at := slices.IndexFunc(s.Registrations, func(r Registration) bool { return r.Initiator == initiator })
	switch {
	case key == 0:
		return s.without(func(r Registration) bool { return r.Initiator == initiator })
	case at < 0:
		s.Registrations = append(slices.Clone(s.Registrations), Registration{Initiator: initiator, Key: key})
	default:
		s.Registrations = slices.Clone(s.Registrations)
		s.Registrations[at].Key = key
	}
	return s
}

// without removes registrations, and the reservation if none of its holders is left.
func (s State) without(remove func(Registration) bool) State {
	s.Registrations = slices.DeleteFunc(slices.Clone(s.Registrations), remove)
	_, held := s.key(s.Holder)
	if s.Type.allRegistrants() {
		held = len(s.Registrations) > 0
	}
	if !held {
		s.Type, s.Holder = 0, ""
	}
	return s
}

func (s State) reserve(initiator string, t Type) State {
	s.Type, s.Holder = t, initiator
	if t.allRegistrants() {
		s.Holder = ""
	}
	return s
}

// preempt removes the registrations with the victim's key. If that key holds the reservation, the
// initiator gets one of the type, and keeps its own registration whatever its key is. For a
// reservation that all registrants hold, the victim 0 stands for all of them.
func (s State) preempt(initiator string, victim uint64, t Type) State {
	s.Generation++
	takes := s.Type != 0 && (s.Type.allRegistrants() && victim == 0 || !s.Type.allRegistrants() && victim == s.holderKey())
	if takes {
		s.Registrations = slices.DeleteFunc(slices.Clone(s.Registrations), func(r Registration) bool {
			return r.Initiator != initiator && (victim == 0 || r.Key == victim)
		})
		return s.reserve(initiator, t)
	}
	return s.without(func(r Registration) bool { return r.Key == victim })
}

// removed are the initiators, other than the one that sent the command, that are registered before
// and not after.
func removed(before, after State, sender string) []string {
	var gone []string
	for _, r := range before.Registrations {
		if _, still := after.key(r.Initiator); !still && r.Initiator != sender {
			gone = append(gone, r.Initiator)
		}
	}
	return gone
}

// Lose removes the registration of an initiator, and its reservation: the platform has forgotten
// the initiator.
func (s State) Lose(initiator string) State {
	if _, registered := s.key(initiator); !registered {
		return s
	}
	return s.register(initiator, 0)
}

// Rename gives an initiator another name, for a VM that is deleted: its registrations stay, and
// belong to no VM.
func (s State) Rename(from, to string) State {
	s.Registrations = slices.Clone(s.Registrations)
	for i := range s.Registrations {
		if s.Registrations[i].Initiator == from {
			s.Registrations[i].Initiator = to
		}
	}
	if s.Holder == from {
		s.Holder = to
	}
	return s
}
