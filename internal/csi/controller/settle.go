package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/csi/status"
	"github.com/azuredisk-csi/azuredisk/internal/volumeparams"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

// settleTimeout bounds the look at what a failed call has left, when its own context may have ended.
const settleTimeout = 10 * time.Second

// settle ends every call that makes something and fails. After a final code csi-provisioner and csi-snapshotter forget the object, and nothing asks for
// its deletion when the claim goes. left says what exists of it, from this call or an earlier one; if anything does, or if that cannot be found out, the
// code is not final. AlreadyExists stays, as CSI asks: what exists is not what was asked for.
func settle(ctx context.Context, failure error, left func(context.Context) (string, error)) error {
	failure = statusOf(failure)
	if code := grpcstatus.Code(failure); !status.Final(code) || code == codes.AlreadyExists {
		return failure
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	what, err := left(ctx)
	switch {
	case err != nil:
		return status.NotFinal(failure, "whether an earlier call has left something cannot be found out: "+err.Error())
	case what != "":
		return status.NotFinal(failure, what+" exists, of this call or an earlier one")
	}
	return failure
}

// leftOfVolume names the AzVolume of a request, if there is one.
func (s *Server) leftOfVolume(ctx context.Context, request *csi.CreateVolumeRequest) (string, error) {
	// Of parameters that are not allowed any more, the default name is left.
	p, _ := volumeparams.ParseWith(request.GetParameters(), request.GetMutableParameters())
	name := apiv1.VolumeName(first(p.SubscriptionID, s.SubscriptionID), first(p.ResourceGroup, s.ResourceGroup), p.NameDisk(request.GetName()))
	v := &apiv1.AzVolume{}
	err := s.Reader.Get(ctx, s.key(name), v)
	switch {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read AzVolume: %w", err)
	case v.Spec.Origin != apiv1.OriginProvisioned:
		return "", nil
	}
	return "AzVolume " + v.Name, nil
}

// leftOfSnapshot names what exists of a snapshot: itself, or the one in the disk's own region that is to be copied.
func (s *Server) leftOfSnapshot(ctx context.Context, w wantedSnapshot) (string, error) {
	for _, id := range []string{w.target.String(), w.local().String()} {
		found, err := s.Snapshots.Get(ctx, id)
		switch {
		case errors.Is(err, provisioner.NotFound):
		case err != nil:
			return "", fmt.Errorf("read snapshot: %w", err)
		case strings.EqualFold(found.SourceID, w.source.String()) || w.madeCopy(found):
			return "snapshot " + id, nil
		}
	}
	return "", nil
}

// leftOfGroup names what exists of a group: its seal, or a member.
func (s *Server) leftOfGroup(ctx context.Context, g group) (string, error) {
	ids := []string{g.seal.String()}
	for _, w := range g.members {
		ids = append(ids, w.target.String())
	}
	for _, id := range ids {
		found, err := s.Snapshots.Get(ctx, id)
		switch {
		case errors.Is(err, provisioner.NotFound):
		case err != nil:
			return "", fmt.Errorf("read snapshot: %w", err)
		case found.Tags[tagSealOf] == g.sources || strings.EqualFold(found.Tags[tagGroup], g.seal.String()):
			return "snapshot " + id, nil
		}
	}
	return "", nil
}
