package plan_test

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	apiv1 "github.com/azuredisk-csi/azuredisk/api/v1"
	"github.com/azuredisk-csi/azuredisk/internal/plan"
	"github.com/azuredisk-csi/azuredisk/provisioner"
)

func TestClaim(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		current *apiv1.PrimaryClaim
		want    apiv1.PrimaryClaim
		changed bool
		refused bool
	}{
		"the first claim has epoch 1":                  {nil, apiv1.PrimaryClaim{NodeName: "b", Epoch: 1, State: apiv1.ClaimHeld}, true, false},
		"a released claim passes on with the next one": {&apiv1.PrimaryClaim{Epoch: 4, State: apiv1.ClaimReleased}, apiv1.PrimaryClaim{NodeName: "b", Epoch: 5, State: apiv1.ClaimHeld}, true, false},
		"the holder's claim stays as it is":            {&apiv1.PrimaryClaim{NodeName: "b", Epoch: 4, State: apiv1.ClaimHeld}, apiv1.PrimaryClaim{NodeName: "b", Epoch: 4, State: apiv1.ClaimHeld}, false, false},
		"a node may take back its own release":         {&apiv1.PrimaryClaim{NodeName: "b", Epoch: 4, State: apiv1.ClaimReleasing}, apiv1.PrimaryClaim{NodeName: "b", Epoch: 5, State: apiv1.ClaimHeld}, true, false},
		"law 1: a second primary is refused":           {&apiv1.PrimaryClaim{NodeName: "a", Epoch: 4, State: apiv1.ClaimHeld}, apiv1.PrimaryClaim{}, false, true},
		"law 3: so is one while the proof is awaited":  {&apiv1.PrimaryClaim{NodeName: "a", Epoch: 4, State: apiv1.ClaimReleasing}, apiv1.PrimaryClaim{}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, changed, err := plan.Claim(test.current, "b", now)
			if test.refused {
				if !errors.Is(err, provisioner.FailedPrecondition) {
					t.Fatalf("error %v", err)
				}
				return
			}
			got.Since = nil
			if err != nil || changed != test.changed || got != test.want {
				t.Fatalf("%+v, changed %t, error %v", got, changed, err)
			}
		})
	}
}

func TestAbsenceFromAReportIsProofOnlyAfterAScan(t *testing.T) {
	t.Parallel()
	scanned := metav1.NewMicroTime(now)
	for name, test := range map[string]struct {
		report *apiv1.AzDriverNode
		proof  bool
	}{
		"no report":                   {nil, false},
		"a report without a scan":     {&apiv1.AzDriverNode{}, false},
		"absent after a scan":         {&apiv1.AzDriverNode{Status: apiv1.AzDriverNodeStatus{MountsScannedTime: &scanned}}, true},
		"present after a scan":        {staged(&scanned, "vol"), false},
		"present without a scan":      {staged(nil, "vol"), false},
		"another volume after a scan": {staged(&scanned, "other"), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proof, why := plan.Unstaged(test.report, "vol", 7, now)
			if (proof != nil) != test.proof || (proof == nil) == (why == "") {
				t.Fatalf("proof %+v, why %q", proof, why)
			}
			if proof != nil && (proof.Epoch != 7 || proof.Kind != apiv1.ProofUnstaged) {
				t.Fatalf("proof %+v", proof)
			}
		})
	}
}

func staged(scan *metav1.MicroTime, volume string) *apiv1.AzDriverNode {
	return &apiv1.AzDriverNode{Status: apiv1.AzDriverNodeStatus{
		MountsScannedTime: scan, StagedVolumes: []apiv1.StagedVolume{{VolumeName: volume, Epoch: 1, Phase: apiv1.PhaseStaged}},
	}}
}

// TestOneWriter plays claims, releases, stagings and kills of any party at any
// step, in any order, and checks that never two nodes use the volume (laws 1 to 3). Each step is
// one access to the API server, as in the protocol.
func TestOneWriter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := &protocol{reports: map[string]map[string]int64{}, staging: map[string]int64{}, using: map[string]bool{}, checked: map[string]bool{}}
		for _, n := range nodes {
			m.reports[n] = map[string]int64{}
		}
		t.Repeat(map[string]func(*rapid.T){
			"claim":            func(t *rapid.T) { m.claim(rapid.SampledFrom(nodes).Draw(t, "node")) },
			"start release":    func(t *rapid.T) { m.startRelease() },
			"read report":      func(t *rapid.T) { m.readReport() },
			"write released":   func(t *rapid.T) { m.writeReleased() },
			"controller dies":  func(t *rapid.T) { m.proof = nil },
			"node announces":   func(t *rapid.T) { m.announce(rapid.SampledFrom(nodes).Draw(t, "node")) },
			"node reads claim": func(t *rapid.T) { m.readClaim(rapid.SampledFrom(nodes).Draw(t, "node")) },
			"node mounts":      func(t *rapid.T) { m.mount(rapid.SampledFrom(nodes).Draw(t, "node")) },
			"node unmounts":    func(t *rapid.T) { m.unmount(rapid.SampledFrom(nodes).Draw(t, "node")) },
			"": func(t *rapid.T) {
				users := 0
				for _, n := range nodes {
					if m.using[n] {
						users++
					}
				}
				if users > 1 {
					t.Fatalf("%d nodes use the volume", users)
				}
			},
		})
	})
}

var nodes = []string{"a", "b", "c"}

type protocol struct {
	current *apiv1.PrimaryClaim
	reports map[string]map[string]int64 // API: node to staged volumes
	proof   *apiv1.ReleaseProof         // in the controller's memory
	staging map[string]int64            // in a node's memory: the epoch that it announced
	checked map[string]bool             // in a node's memory: it has seen its claim
	using   map[string]bool             // the truth
}

func (m *protocol) claim(node string) {
	if c, changed, err := plan.Claim(m.current, node, now); err == nil && changed {
		m.current = &c
	}
}

func (m *protocol) startRelease() {
	if m.current == nil {
		return
	}
	if c, holder, changed := plan.Releasing(m.current, m.current.NodeName, now); holder && changed {
		m.current = &c
	}
}

func (m *protocol) readReport() {
	if m.current == nil || m.current.State != apiv1.ClaimReleasing {
		return
	}
	scanned := metav1.NewMicroTime(now)
	report := &apiv1.AzDriverNode{Status: apiv1.AzDriverNodeStatus{MountsScannedTime: &scanned}}
	for v, e := range m.reports[m.current.NodeName] {
		report.Status.StagedVolumes = append(report.Status.StagedVolumes, apiv1.StagedVolume{VolumeName: v, Epoch: e})
	}
	m.proof, _ = plan.Unstaged(report, "vol", m.current.Epoch, now)
}

func (m *protocol) writeReleased() {
	if m.proof == nil || m.current.State != apiv1.ClaimReleasing || m.current.Epoch != m.proof.Epoch {
		return
	}
	c := plan.Released(*m.current, now)
	m.current, m.proof = &c, nil
}

func (m *protocol) announce(node string) {
	if m.current == nil || m.using[node] {
		return
	}
	m.reports[node]["vol"], m.staging[node], m.checked[node] = m.current.Epoch, m.current.Epoch, false
}

func (m *protocol) readClaim(node string) {
	if _, announced := m.reports[node]["vol"]; !announced || m.using[node] {
		return
	}
	c := m.current
	if c.State == apiv1.ClaimHeld && c.NodeName == node && c.Epoch == m.staging[node] {
		m.checked[node] = true
		return
	}
	delete(m.reports[node], "vol")
	m.checked[node] = false
}

func (m *protocol) mount(node string) {
	if m.checked[node] {
		m.using[node] = true
	}
}

func (m *protocol) unmount(node string) {
	if m.using[node] || m.checked[node] {
		m.using[node], m.checked[node] = false, false
		delete(m.reports[node], "vol")
	}
}
