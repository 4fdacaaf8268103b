// Package store keeps azuresim's state: typed tables of JSON records in one bbolt file.
//
// Every write transaction is on the disk before Update returns, so what a caller was told survives
// a kill at any instruction. Write transactions run one at a time, which is what makes
// read-check-write sequences of the model safe without locks.
package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// Store is an open database file. Only one process can hold it.
type Store struct{ db *bolt.DB }

// Tx is a transaction. It must not leave the function that it was given to.
type Tx struct{ tx *bolt.Tx }

// Open opens or makes the file at path with the given tables. It waits up to lockWait for another
// process to release the file.
func Open(path string, lockWait time.Duration, tables ...string) (*Store, error) {
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: lockWait})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, fmt.Errorf("open store %s: another process has had it open for %s", path, lockWait)
	}
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", path, err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		for _, name := range tables {
			if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
				return fmt.Errorf("create table %s: %w", name, err)
			}
		}
		return nil
	})
	if err != nil {
		_ = db.Close()
		return nil, err
	}
	return &Store{db: db}, nil
}

// Close waits for open transactions and closes the file.
func (s *Store) Close() error { return s.db.Close() }

// Update runs fn in a write transaction. If fn returns an error nothing is written and the error is
// returned as it is.
func (s *Store) Update(fn func(*Tx) error) error {
	return s.db.Update(func(tx *bolt.Tx) error { return fn(&Tx{tx}) })
}

// View runs fn in a read transaction, on one consistent state.
func (s *Store) View(fn func(*Tx) error) error {
	return s.db.View(func(tx *bolt.Tx) error { return fn(&Tx{tx}) })
}

// OnCommit registers fn to run after the transaction is on the disk; it does not run if the
// transaction fails.
func (t *Tx) OnCommit(fn func()) { t.tx.OnCommit(fn) }

// Table is a table of records of type T. The zero value is not usable; Name must be one of the
// names given to Open.
type Table[T any] struct{ Name string }

func (t Table[T]) bucket(tx *Tx) *bolt.Bucket {
	b := tx.tx.Bucket([]byte(t.Name))
	if b == nil {
		panic("store: table " + t.Name + " was not given to Open")
	}
	return b
}

// Get returns a fresh copy of the record, or nil if there is none.
func (t Table[T]) Get(tx *Tx, key string) (*T, error) {
	raw := t.bucket(tx).Get([]byte(key))
	if raw == nil {
		return nil, nil
	}
	return t.decode(key, raw)
}

func (t Table[T]) decode(key string, raw []byte) (*T, error) {
	value := new(T)
	if err := json.Unmarshal(raw, value); err != nil {
		return nil, fmt.Errorf("decode %s %s: %w", t.Name, key, err)
	}
	return value, nil
}

// Put writes the record.
func (t Table[T]) Put(tx *Tx, key string, value *T) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode %s %s: %w", t.Name, key, err)
	}
	if err := t.bucket(tx).Put([]byte(key), raw); err != nil {
		return fmt.Errorf("write %s %s: %w", t.Name, key, err)
	}
	return nil
}

// Delete removes the record; a missing one is success.
func (t Table[T]) Delete(tx *Tx, key string) error {
	if err := t.bucket(tx).Delete([]byte(key)); err != nil {
		return fmt.Errorf("delete %s %s: %w", t.Name, key, err)
	}
	return nil
}

// NextSequence returns a number that this table never returned before.
func (t Table[T]) NextSequence(tx *Tx) (uint64, error) {
	n, err := t.bucket(tx).NextSequence()
	if err != nil {
		return 0, fmt.Errorf("next sequence of %s: %w", t.Name, err)
	}
	return n, nil
}

// LastSequence returns the number that NextSequence returned last.
func (t Table[T]) LastSequence(tx *Tx) uint64 { return t.bucket(tx).Sequence() }
