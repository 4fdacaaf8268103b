package sku

import (
	"context"
	"sync"
	"time"
)

// cache keeps an answer of Azure for each region. While an answer is being read, all callers wait
// for it.
type cache[T any] struct {
	mu      sync.Mutex
	answers map[string]*answer[T]
}

type answer[T any] struct {
	reading chan struct{} // holds a token unless the answer is being read
	at      time.Time     // when the latest reading began
	value   T             // of the latest reading without an error; it is replaced and not changed
	err     error         // of the latest reading
}

func (c *cache[T]) answer(region string) *answer[T] {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answers == nil {
		c.answers = map[string]*answer[T]{}
	}
	a, ok := c.answers[region]
	if !ok {
		a = &answer[T]{reading: make(chan struct{}, 1)}
		a.reading <- struct{}{}
		c.answers[region] = a
	}
	return a
}

// get returns the answer for a region. It reads the answer unless the one at hand is valid.
func (c *cache[T]) get(ctx context.Context, region string, now func() time.Time, valid func(*answer[T]) bool,
	read func() (T, error)) (T, error) {
	a := c.answer(region)
	select {
	case <-a.reading:
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
	defer func() { a.reading <- struct{}{} }()
	if !a.at.IsZero() && valid(a) {
		return a.value, a.err
	}
	at := now()
	value, err := read()
	if err != nil && ctx.Err() != nil {
		return value, err // the caller has left, which says nothing about Azure
	}
	if a.at, a.err = at, err; err == nil {
		a.value = value
	}
	return value, err
}

// known returns the latest value without waiting, and whether it was read at or after a time.
func (c *cache[T]) known(region string, since time.Time) (value T, recent bool) {
	a := c.answer(region)
	select {
	case <-a.reading:
	default:
		return value, true // it is being read
	}
	defer func() { a.reading <- struct{}{} }()
	return a.value, !a.at.IsZero() && a.err == nil && !a.at.Before(since)
}
