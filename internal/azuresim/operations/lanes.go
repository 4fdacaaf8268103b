package operations

import (
	"fmt"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/store"
)

var (
	opTable   = store.Table[Operation]{Name: "operations"}
	laneTable = store.Table[string]{Name: "lanes"} // lane, sequence number -> operation ID, for operations that are not done
)

// Tables are the tables that the engine needs in its store.
var Tables = []string{opTable.Name, laneTable.Name}

func laneKey(op *Operation) string { return fmt.Sprintf("%s\x00%016x", op.Lane, op.Seq) }

// Enqueue accepts the operation. It runs once the transaction is committed and its lane is free.
func (e *Engine) Enqueue(tx *store.Tx, op *Operation) error {
	seq, err := opTable.NextSequence(tx)
	if err != nil {
		return err
	}
	ahead, err := e.Lane(tx, op.Lane)
	if err != nil {
		return err
	}
	op.Seq, op.State, op.Accepted = seq, Queued, e.Clock.Now()
	if err := laneTable.Put(tx, laneKey(op), &op.ID); err != nil {
		return err
	}
	if len(ahead) == 0 {
		e.start(tx, op)
	}
	return opTable.Put(tx, op.ID, op)
}

func (e *Engine) start(tx *store.Tx, op *Operation) {
	op.State, op.Due = Running, e.Clock.Now().Add(op.Duration)
	started := *op
	tx.OnCommit(func() { e.note(&started) })
}

// end records the final state and lets the next of the lane start.
func (e *Engine) end(tx *store.Tx, op *Operation, state State, cause *armerror.Error) error {
	op.State, op.Ended, op.Error = state, e.Clock.Now(), cause
	if err := opTable.Put(tx, op.ID, op); err != nil {
		return err
	}
	if err := laneTable.Delete(tx, laneKey(op)); err != nil {
		return err
	}
	rest, err := e.Lane(tx, op.Lane)
	if err != nil || len(rest) == 0 || rest[0].State != Queued {
		return err
	}
	next := rest[0]
	e.start(tx, next)
	return opTable.Put(tx, next.ID, next)
}

// Cancel takes every operation out of the lane, to make way for a newer one, and returns them.
// Their effects so far stay; the newer one has to answer for them.
func (e *Engine) Cancel(tx *store.Tx, lane string, cause *armerror.Error) ([]*Operation, error) {
	victims, err := e.Lane(tx, lane)
	if err != nil {
		return nil, err
	}
	for _, op := range victims {
		op.State, op.Ended, op.Error = Canceled, e.Clock.Now(), cause
		if err := opTable.Put(tx, op.ID, op); err != nil {
			return nil, err
		}
		if err := laneTable.Delete(tx, laneKey(op)); err != nil {
			return nil, err
		}
	}
	return victims, nil
}

// Get returns the operation, or nil.
func (e *Engine) Get(tx *store.Tx, id string) (*Operation, error) { return opTable.Get(tx, id) }

// Lane returns the operations of the lane that are not done, oldest first.
func (e *Engine) Lane(tx *store.Tx, lane string) ([]*Operation, error) {
	return e.unfinished(tx, lane+"\x00")
}

// Unfinished returns every operation that is not done.
func (e *Engine) Unfinished(tx *store.Tx) ([]*Operation, error) { return e.unfinished(tx, "") }

// Accepted returns how many operations were ever accepted, and whether all are done.
func (e *Engine) Accepted(tx *store.Tx) (count uint64, idle bool, err error) {
	ops, err := e.unfinished(tx, "")
	return opTable.LastSequence(tx), len(ops) == 0, err
}

func (e *Engine) unfinished(tx *store.Tx, prefix string) ([]*Operation, error) {
	keys, err := laneTable.All(tx, prefix)
	if err != nil {
		return nil, err
	}
	ops := make([]*Operation, 0, len(keys))
	for _, k := range keys {
		op, err := opTable.Get(tx, *k.Value)
		if err != nil {
			return nil, err
		}
		if op == nil {
			return nil, fmt.Errorf("lane names operation %s, which is not there", *k.Value)
		}
		ops = append(ops, op)
	}
	return ops, nil
}

// forgetOld removes operations that ended longer than the retention ago.
func (e *Engine) forgetOld(tx *store.Tx) error {
	all, err := opTable.All(tx, "")
	if err != nil {
		return err
	}
	for _, r := range all {
		if r.Value.Done() && e.Clock.Since(r.Value.Ended) > retention {
			if err := opTable.Delete(tx, r.Key); err != nil {
				return err
			}
		}
	}
	return nil
}
