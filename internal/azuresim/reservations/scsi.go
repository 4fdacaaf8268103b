package reservations

import "encoding/binary"

// Operation codes of SCSI.
const (
	OpIn  = 0x5E // PERSISTENT RESERVE IN
	OpOut = 0x5F // PERSISTENT RESERVE OUT
)

// Service actions of PERSISTENT RESERVE OUT.
const (
	Register          = 0x00
	Reserve           = 0x01
	Release           = 0x02
	Clear             = 0x03
	Preempt           = 0x04
	PreemptAndAbort   = 0x05
	RegisterAndIgnore = 0x06
)

// Service actions of PERSISTENT RESERVE IN.
const (
	readKeys           = 0x00
	readReservation    = 0x01
	reportCapabilities = 0x02
)

// Status of a command.
type Status uint8

// The statuses that a disk answers with.
const (
	Good           Status = 0x00
	CheckCondition Status = 0x02
	Conflict       Status = 0x18
)

// parameterListLength is that of all service actions but REGISTER AND MOVE.
const parameterListLength = 24

// specIPt in the flags of the parameter list registers other initiators too.
const specIPt = 0x08

// Answer of a disk to a command.
type Answer struct {
	Status Status `json:"status"`
	// Sense says why, with CheckCondition.
	Sense []byte `json:"sense,omitempty"`
	// Data is what the disk returns, as long as the command allowed.
	Data []byte `json:"data,omitempty"`

	// State after the command.
	State State `json:"-"`
	// Abort names the initiators whose commands in flight the command aborts.
	Abort []string `json:"-"`
}

// The additional sense codes and their qualifiers. All go with the sense key ILLEGAL REQUEST.
const (
	invalidCommand    = 0x2000
	invalidCDB        = 0x2400
	invalidList       = 0x2600
	invalidRelease    = 0x2604
	listLengthInvalid = 0x1A00
)

// Execute runs a command of an initiator. cdb is the command, and out its parameter list.
func (s State) Execute(initiator string, cdb, out []byte) Answer {
	if len(cdb) != 10 {
		return s.illegal(invalidCDB)
	}
	switch cdb[0] {
	case OpIn:
		return s.in(cdb)
	case OpOut:
		if int(binary.BigEndian.Uint32(cdb[5:9])) != parameterListLength || len(out) != parameterListLength {
			return s.illegal(listLengthInvalid)
		}
		return s.out(initiator, cdb, out)
	}
	return s.illegal(invalidCommand)
}

// Unsupported is the answer of a disk that has no reservations.
func Unsupported() Answer { return State{}.illegal(invalidCommand) }

func (s State) illegal(code uint16) Answer {
	sense := make([]byte, 18) // fixed format
	sense[0], sense[2], sense[7] = 0x70, 0x05, 10
	binary.BigEndian.PutUint16(sense[12:], code)
	return Answer{
		Status: CheckCondition,
		Sense:  sense,
		State:  s,
	}
}

func (s State) conflict() Answer     { return Answer{Status: Conflict, State: s} }
func (s State) good(to State) Answer { return Answer{Status: Good, State: to} }

func (s State) out(initiator string, cdb, list []byte) Answer {
	action, scope, t := cdb[1]&0x1F, cdb[2]>>4, Type(cdb[2]&0x0F)
	key, other := binary.BigEndian.Uint64(list), binary.BigEndian.Uint64(list[8:])
	own, registered := s.key(initiator)
	switch action {
	case Register, RegisterAndIgnore:
		if list[20]&specIPt != 0 {
			return s.illegal(invalidList)
		}
		if action == Register && key != own { // the key of an initiator that is not registered is 0
			return s.conflict()
		}
		return s.good(s.register(initiator, other))
	case Reserve, Release, Preempt, PreemptAndAbort:
		if scope != 0 || !t.known() {
			return s.illegal(invalidCDB)
		}
	case Clear:
	default:
		return s.illegal(invalidCDB)
	}
	if !registered || key != own {
		return s.conflict()
	}
	switch action {
	case Reserve:
		if s.Type != 0 && (!s.holds(initiator) || s.Type != t) {
			return s.conflict()
		}
		return s.good(s.reserve(initiator, t))
	case Release:
		return s.release(initiator, t)
	case Clear:
		return s.good(State{Generation: s.Generation + 1})
	}
	return s.answerPreempt(initiator, other, t, action == PreemptAndAbort)
}

func (s State) release(initiator string, t Type) Answer {
	if !s.holds(initiator) {
		return s.good(s)
	}
	if s.Type != t {
		return s.illegal(invalidRelease)
	}
	after := s
	after.Type, after.Holder = 0, ""
	return s.good(after)
}

func (s State) answerPreempt(initiator string, victim uint64, t Type, abort bool) Answer {
	if victim == 0 && !s.Type.allRegistrants() {
		return s.illegal(invalidList)
	}
	if victim != 0 && !s.hasKey(victim) {
		return s.conflict()
	}
	answer := s.good(s.preempt(initiator, victim, t))
	if abort {
		answer.Abort = removed(s, answer.State, initiator)
	}
	return answer
}

func (s State) in(cdb []byte) Answer {
	var data []byte
	switch cdb[1] & 0x1F {
	case readKeys:
		var keys []byte
		for _, r := range s.Registrations {
			keys = binary.BigEndian.AppendUint64(keys, r.Key)
		}
		data = s.list(keys)
	case readReservation:
		var reservation []byte
		if s.Type != 0 {
			reservation = binary.BigEndian.AppendUint64(nil, s.holderKey())
			reservation = append(reservation, 0, 0, 0, 0, 0, byte(s.Type), 0, 0)
		}
		data = s.list(reservation)
	case reportCapabilities:
		// PTPL_C; TMV and PTPL_A; the mask of all six types.
		data = []byte{0, 8, 0x01, 0x81, 0xEA, 0x01, 0, 0}
	default:
		return s.illegal(invalidCDB)
	}
	answer := s.good(s)
	answer.Data = data[:min(len(data), int(binary.BigEndian.Uint16(cdb[7:9])))]
	return answer
}

// list puts the generation and the length in front.
func (s State) list(content []byte) []byte {
	data := binary.BigEndian.AppendUint32(nil, s.Generation)
	data = binary.BigEndian.AppendUint32(data, uint32(len(content)))
	return append(data, content...)
}
