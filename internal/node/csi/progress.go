package csi

import (
	"context"
	"errors"
)

// delivered runs a call that may take longer than its caller waits, for example a check of a large
// filesystem. It keeps the failure for the next call, which would otherwise repeat the same work,
// and whose failure would be lost too. It does not keep a success, because the device shows that.
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

// progress describes the command that is running on a volume's device, after a separator; "" for
// none.
func (s *Server) progress(volume string) string {
	record, recorded, _ := s.options.Records.Get(volume)
	if !recorded {
		return ""
	}
	if progress := s.options.Host.Filesystems().Progress(record.Device); progress != "" {
		return ": " + progress
	}
	return ""
}

// stopWork stops a filesystem check of a volume that is not wanted on this node any more.
func (s *Server) stopWork(volume string) {
	if record, recorded, _ := s.options.Records.Get(volume); recorded {
		s.options.Host.Filesystems().Stop(record.Device)
	}
}
