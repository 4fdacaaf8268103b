package compute

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/azuredisk-csi/azuredisk/azuresim/armerror"
	"github.com/azuredisk-csi/azuredisk/azuresim/latency"
	"github.com/azuredisk-csi/azuredisk/azuresim/operations"
	"github.com/azuredisk-csi/azuredisk/azuresim/store"
)

// accessPayload is what an access operation grants; an empty level revokes.
type accessPayload struct {
	Level   string    `json:"level,omitempty"`
	Expires time.Time `json:"expires"`
	URL     string    `json:"url,omitempty"`
}

// GrantAccess is beginGetAccess on a disk or snapshot: level is Read or Write.
func (c *Cloud) GrantAccess(id ID, level string, duration time.Duration) (*operations.Operation, error) {
	switch {
	case !strings.EqualFold(level, "Read") && !strings.EqualFold(level, "Write"):
		return nil, armerror.InvalidParameter("grantAccessData.access", "The value '%s' of parameter 'access' is invalid. Allowed values are Read, Write.", level)
	case duration <= 0:
		return nil, armerror.InvalidParameter("grantAccessData.durationInSeconds", "The value '%d' of parameter 'durationInSeconds' must be greater than 0.", int64(duration/time.Second))
	}
	return c.changeAccess(id, func(uid string, now time.Time) accessPayload {
		return accessPayload{Level: level, Expires: now.Add(duration),
			URL: fmt.Sprintf("https://md-%s.blob.storage.azure.net/%s/abcd?sv=2018-03-28&sr=b&se=%s&sp=%c", uid[:12], uid, now.Add(duration).UTC().Format(time.RFC3339), strings.ToLower(level)[0])}
	})
}

// RevokeAccess is endGetAccess.
func (c *Cloud) RevokeAccess(id ID) (*operations.Operation, error) {
	return c.changeAccess(id, func(string, time.Time) accessPayload { return accessPayload{} })
}

func (c *Cloud) changeAccess(id ID, payload func(uid string, now time.Time) accessPayload) (*operations.Operation, error) {
	return change(c, func(tx *store.Tx) (*operations.Operation, error) {
		if err := c.laneFree(tx, diskLane(id)); err != nil {
			return nil, err
		}
		now := c.Clock.Now().UTC()
		j := job{lane: diskLane(id), target: id, duration: c.Latency.Draw(latency.DiskAccess)}
		if id.Kind == KindSnapshot {
			s, err := snapshotTable.Get(tx, id.Key())
			if err != nil || s == nil {
				return nil, orNotFound(err, id)
			}
			j.kind, j.location, j.payload = opSnapshotAccess, s.Location, payload(s.UID, now)
			return c.enqueue(tx, j)
		}
		d, err := diskTable.Get(tx, id.Key())
		if err != nil || d == nil {
			return nil, orNotFound(err, id)
		}
		p := payload(d.UID, now)
		held, _, err := c.holders(tx, d)
		if err != nil {
			return nil, err
		}
		for _, h := range held {
			if !h.deallocated && p.Level != "" {
				return nil, armerror.NotAllowed("Cannot grant access to disk %s while it is attached to running VM %s.", d.ID.Name, h.vm)
			}
		}
		if strings.EqualFold(p.Level, "Write") && !d.UploadReady {
			return nil, armerror.NotAllowed("Write access can be granted only to a disk that was created with option Upload; disk %s was not.", d.ID.Name)
		}
		j.kind, j.location, j.payload = opDiskAccess, d.Location, p
		return c.enqueue(tx, j)
	})
}

// completeAccess records the access of a finished operation. Revoking write access ends an upload.
func (c *Cloud) completeAccess(op *operations.Operation, access **Access, uploadReady *bool) error {
	var p accessPayload
	if err := json.Unmarshal(op.Payload, &p); err != nil {
		return fmt.Errorf("decode payload: %w", err)
	}
	if p.Level != "" {
		*access = &Access{Level: p.Level, Expires: p.Expires}
		return nil
	}
	if *access != nil && strings.EqualFold((*access).Level, "Write") {
		*uploadReady = false
	}
	*access = nil
	return nil
}

// AccessURL returns the URL that a finished access operation granted, empty if it granted none.
func AccessURL(op *operations.Operation) string {
	var p accessPayload
	if op.Kind != opDiskAccess && op.Kind != opSnapshotAccess || json.Unmarshal(op.Payload, &p) != nil {
		return ""
	}
	return p.URL
}
