package store

import (
	"bytes"
	"iter"
)

// Record is a key with its decoded value.
type Record[T any] struct {
	Key   string
	Value *T
}

// Scan yields the records whose key begins with prefix and is greater than after, in key order. A
// record that cannot be decoded ends the scan with its error. The table must not be written during
// the scan.
func (t Table[T]) Scan(tx *Tx, prefix, after string) iter.Seq2[Record[T], error] {
	return func(yield func(Record[T], error) bool) {
		from := []byte(max(prefix, after))
		c := t.bucket(tx).Cursor()
		for k, v := c.Seek(from); k != nil && bytes.HasPrefix(k, []byte(prefix)); k, v = c.Next() {
			if after != "" && string(k) <= after {
				continue
			}
			value, err := t.decode(string(k), v)
			if !yield(Record[T]{string(k), value}, err) || err != nil {
				return
			}
		}
	}
}

// All returns the records of Scan from the beginning.
func (t Table[T]) All(tx *Tx, prefix string) ([]Record[T], error) {
	var list []Record[T]
	for r, err := range t.Scan(tx, prefix, "") {
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, nil
}
