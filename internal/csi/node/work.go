package node

import (
	"context"
	"errors"
)

// delivered runs a call that may take longer than its caller waits, as a check of a large filesystem does: its failure is kept for the next
// call, which would otherwise start the same work over and end as unheard. A success needs no keeping, because it shows on the device.
func (s *Server) delivered(ctx context.Context, volume string, call func() error) error {
	if err := s.takeUndelivered(volume); err != nil {
		return err
	}
	err := call()
	if err != nil && ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.undelivered[volume] = err
	}
	return err
}

func (s *Server) takeUndelivered(volume string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.undelivered[volume]
	delete(s.undelivered, volume)
	return err
}

// progress describes the command that works on a volume's device, after a separator; "" for none.
func (s *Server) progress(volume string) string {
	record, recorded, err := s.options.Records.Get(volume)
	if err != nil || !recorded {
		return ""
	}
	if progress := s.options.Host.Filesystems().Progress(record.Device); progress != "" {
		return ": " + progress
	}
	return ""
}

// stopWork stops a filesystem check of a volume that is not wanted here any more.
func (s *Server) stopWork(volume string) {
	if record, recorded, err := s.options.Records.Get(volume); err == nil && recorded {
		s.options.Host.Filesystems().Stop(record.Device)
	}
}
