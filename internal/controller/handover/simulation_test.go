package handover_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/controlplane"
	"github.com/azuredisk-csi/azuredisk/provisioner"
	"github.com/azuredisk-csi/azuredisk/provisioner/fake"
)

var (
	seed  = flag.Uint64("seed", 0, "seed of the simulation; 0 for a new one")
	steps = flag.Int("steps", 120, "steps of the simulation")
)

// TestSimulation publishes, unpublishes, moves, kills the controller and lets Azure fail, at random, and checks the
// laws after each step and that nothing is left over at the end.
func TestSimulation(t *testing.T) {
	from := *seed
	if from == 0 {
		from = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d (go test ./internal/controller/handover -run TestSimulation -seed %d -steps %d)", from, from, *steps)
	s := &simulation{
		T: t, random: rand.New(rand.NewPCG(from, 1)), epochs: map[string]int64{}, users: map[string]string{},
		p: controlplane.New(t, controlplane.Options{Quiet: true, CleanUpDelay: 2 * time.Second, ReservedSlots: 1,
			Latency: fake.Latency{Attach: 20 * time.Millisecond, Detach: 20 * time.Millisecond}}),
	}
	for i := range 4 {
		name := fmt.Sprintf("sim-%d", i)
		s.nodes = append(s.nodes, name)
		s.p.AddNode(name, "1", "Standard_D2s_v3")
	}
	for i, parameters := range []map[string]string{replicated, {"skuName": "Premium_LRS", "maxShares": "3"}, {"skuName": "Premium_LRS"}, replicated} {
		name := fmt.Sprintf("vol-%d", i)
		s.volumes = append(s.volumes, name)
		s.p.Create(name, parameters)
	}
	for range *steps {
		s.step()
		s.laws()
	}
	s.settle()
}

type simulation struct {
	*testing.T
	p       *controlplane.ControlPlane
	random  *rand.Rand
	nodes   []string
	volumes []string
	epochs  map[string]int64
	users   map[string]string // volume to the node that has it staged
	done    []string
}

func pickOne(r *rand.Rand, from []string) string { return from[r.IntN(len(from))] }

func (s *simulation) step() {
	volume, node := pickOne(s.random, s.volumes), pickOne(s.random, s.nodes)
	if c := s.p.Volume(volume).Status.Primary; c != nil && c.NodeName != "" && s.random.IntN(3) > 0 {
		node = c.NodeName // where something can happen
	}
	handle := controlplane.DiskID(volume)
	var err error
	action := ""
	switch n := s.random.IntN(20); {
	case n < 6:
		action = "publish"
		err = s.p.Publish(shortly(s.T, 3*time.Second), handle, node)
	case n < 11:
		action = "stage"
		if err = s.p.Stage(volume, node); err == nil {
			if user := s.users[volume]; user != "" && user != node {
				s.fatal("laws 1 and 2: %s staged on %s while %s uses it", volume, node, user)
			}
			s.users[volume] = node
		}
	case n < 14:
		action = "unstage and unpublish"
		if user := s.users[volume]; user != "" {
			node = user
		}
		s.p.Unstage(volume, node)
		if s.users[volume] == node {
			delete(s.users, volume)
		}
		err = s.p.Unpublish(shortly(s.T, 3*time.Second), handle, node)
	case n < 16:
		action = "unpublish without unstage"
		err = s.p.Unpublish(shortly(s.T, 300*time.Millisecond), handle, node)
		if err == nil && s.users[volume] == node {
			s.fatal("law 3: %s was released under its user %s", volume, node)
		}
	case n < 18:
		action = "kill in the middle of a call"
		ctx := shortly(s.T, time.Second)
		called := make(chan struct{})
		go func() {
			defer close(called)
			_ = s.p.Publish(ctx, handle, node)
		}()
		s.p.Stop()
		<-called
		s.p.Start()
	default:
		action = "Azure fails"
		method := []fake.Method{fake.AttachmentsAttach, fake.AttachmentsDetach, fake.AttachmentsList}[s.random.IntN(3)]
		failure := provisioner.Errorf(provisioner.Unavailable, "a fault")
		if s.random.IntN(2) == 0 {
			s.p.Cloud.FailNext(method, 1, failure)
		} else {
			s.p.Cloud.Inject(fake.Fault{Method: method, Times: 1, OperationErr: failure})
		}
	}
	s.done = append(s.done, fmt.Sprintf("%s %s %s: %v", action, volume, node, err))
	if code := status.Code(err); action != "stage" && (code == codes.Internal || code == codes.Unknown) {
		s.fatal("a call failed with %s", code)
	}
}

// laws checks what must hold at every moment.
func (s *simulation) laws() {
	for _, name := range s.volumes {
		v := s.p.Volume(name)
		claim := v.Status.Primary
		if claim == nil {
			continue
		}
		if claim.Epoch < s.epochs[name] {
			s.fatal("law 1: the epoch of %s shrank", name)
		}
		s.epochs[name] = claim.Epoch
		if user := s.users[name]; user != "" {
			if claim.State == apiv1.OwnershipReleased || claim.NodeName != user {
				s.fatal("law 3: %s is used by %s and owned by %+v", name, user, *claim)
			}
			if !strings.Contains(fmt.Sprint(s.p.AttachedTo(name)), user) {
				s.fatal("law 3: %s was detached from its user %s", name, user)
			}
		}
		if len(s.p.AttachedTo(name)) > int(v.Spec.Disk.MaxShares) {
			s.fatal("%s has too many attachments", name)
		}
	}
}

// settle has every node release its volumes and deletes everything.
func (s *simulation) settle() {
	for _, volume := range s.volumes {
		for _, node := range s.nodes {
			s.p.Unstage(volume, node)
		}
		delete(s.users, volume)
		handle := controlplane.DiskID(volume)
		s.p.Eventually("all of "+volume+" is unpublished", func() string {
			if err := s.p.Unpublish(shortly(s.T, 5*time.Second), handle, ""); err != nil {
				return err.Error() + "\n" + strings.Join(s.done, "\n")
			}
			return ""
		})
		s.p.Eventually(volume+" is deleted", func() string {
			if _, err := s.p.CSI.DeleteVolume(shortly(s.T, 5*time.Second), &csi.DeleteVolumeRequest{VolumeId: handle}); err != nil {
				return err.Error() + "\n" + strings.Join(s.done, "\n")
			}
			return ""
		})
	}
	for _, v := range s.volumes {
		if left := s.p.Attachments(v); len(left) > 0 || s.p.Volume(v) != nil {
			s.fatal("left over of %s: %v", v, left)
		}
	}
	state := s.p.Cloud.State()
	if len(state.Disks) > 0 {
		s.fatal("disks are left over: %v", state.Disks)
	}
}

func (s *simulation) fatal(format string, args ...any) {
	s.Helper()
	s.Fatalf(format+"\n%s", append(args, strings.Join(s.done, "\n"))...)
}
