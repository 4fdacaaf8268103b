package lifecycle

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/azuredisk-csi/azuredisk/playground/cluster"
	"github.com/azuredisk-csi/azuredisk/playground/source"
)

const (
	answering = "answering"

	// shutDownExt4 is EXT4_IOC_SHUTDOWN, and withoutLog its EXT4_GOING_FLAGS_NOLOGFLUSH.
	shutDownExt4 = 0x8004587d
	withoutLog   = 2
	// sourceFinalizer is what snapshot-controller has on the source of a snapshot that is not complete.
	sourceFinalizer = "snapshot.storage.kubernetes.io/pvc-as-source-protection"
)

var answerTests = []Test{
	{Topic: answering, Name: "a filesystem that the kernel has stopped is named, and the next pod writes", run: namesStopped},
	{Topic: answering, Name: "a frozen filesystem is named, and what the answer says to do thaws it", run: namesFrozen},
	{Topic: answering, Name: "a PersistentVolume deleted in use is made again under a pod, and the next pod has its data",
		run: namesDeletedPV},
	{Topic: answering, Name: "an AzVolume deleted in use is kept, and the next pod has its data", run: namesDeletedRecord},
	{Topic: answering, Name: "a snapshot that keeps a deleted claim is named, and what the answer says to do ends it",
		run: namesSnapshot},
}

// answer is what the command `kubectl azuredisk why` says.
type answer struct {
	Reason      string `json:"reason"`
	Message     string `json:"message"`
	Quote       string `json:"quote"`
	Remediation string `json:"remediation"`
}

// why asks why an object is not ready. The command is beside this program.
func (t *bench) why(ctx context.Context, kind, name string) (answer, error) {
	var a answer
	own, err := os.Executable()
	if err != nil {
		return a, err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(filepath.Dir(own), "kubectl-azuredisk"), "why", kind, name,
		"--namespace", t.namespace, "--output", "json")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+t.Dir.Kubeconfig())
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// Its exit code is the kind of answer.
	err = cmd.Run()
	if exit := new(exec.ExitError); err != nil && !(errors.As(err, &exit) && stdout.Len() > 0) {
		return a, fmt.Errorf("ask why %s %s: %w: %s", kind, name, err, strings.TrimSpace(stderr.String()))
	}
	return a, json.Unmarshal(stdout.Bytes(), &a)
}

// awaitAnswer waits until the answer names that reason.
func (t *bench) awaitAnswer(ctx context.Context, kind, name, reason string) (answer, error) {
	var a answer
	return a, await(ctx, "the answer about "+kind+" "+name+" is "+reason, func(ctx context.Context) error {
		var err error
		a, err = t.why(ctx, kind, name)
		return errors.Join(err, check(a.Reason == reason, "it is %+v", a))
	})
}

// again deletes the pod and makes it again with the claim data.
func (t *bench) again(ctx context.Context, pod string) error {
	if err := t.deletePod(ctx, pod); err != nil {
		return err
	}
	if err := t.awaitPodGone(ctx, pod); err != nil {
		return err
	}
	_, err := t.run(ctx, pod, []string{"data"})
	return err
}

func namesStopped(ctx context.Context, t *bench) error {
	pod, pv, err := t.volume(ctx, "4Gi")
	if err != nil {
		return err
	}
	process, err := t.Process(ctx, pod.Spec.NodeName)
	if err != nil {
		return err
	}
	// As ext4 does it after an error of its journal.
	mounted, err := os.Open(filepath.Join(process, "root", globalPath(pv)))
	if err != nil {
		return err
	}
	err = unix.IoctlSetPointerInt(int(mounted.Fd()), shutDownExt4, withoutLog)
	if err := errors.Join(err, mounted.Close()); err != nil {
		return fmt.Errorf("stop the filesystem: %w", err)
	}
	const reason = "FilesystemTakesNoWrites"
	if _, err := t.awaitAnswer(ctx, "pod", pod.Name, reason); err != nil {
		return err
	}
	if _, err := t.awaitEvent(ctx, pod.Name, reason); err != nil {
		return err
	}
	if _, err := t.probe(ctx, pod.Name, "put", filePath("data", "file"), "too early"); err == nil {
		return errors.New("the filesystem takes writes")
	}
	if err := t.again(ctx, pod.Name); err != nil {
		return err
	}
	_, err = t.probe(ctx, pod.Name, "put", filePath("data", "file"), "after the error")
	return err
}

// fsfreeze runs that program on a node.
func (t *bench) fsfreeze(ctx context.Context, node, what, path string) error {
	command, err := t.Enter(ctx, node)
	if err != nil {
		return err
	}
	command = append(command, "fsfreeze", what, path)
	out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("fsfreeze %s: %w: %s", what, err, bytes.TrimSpace(out))
	}
	return nil
}

func namesFrozen(ctx context.Context, t *bench) error {
	const reason, advice = "FilesystemFrozen", "fsfreeze --unfreeze"
	pod, pv, err := t.volume(ctx, "4Gi")
	if err != nil {
		return err
	}
	node := pod.Spec.NodeName
	thawed := false
	t.later("thaw the filesystem", func(ctx context.Context) error {
		if thawed {
			return nil
		}
		return t.fsfreeze(ctx, node, "--unfreeze", globalPath(pv))
	})
	if err := t.fsfreeze(ctx, node, "--freeze", globalPath(pv)); err != nil {
		return err
	}
	written := make(chan error, 1)
	go func() {
		_, err := t.probe(ctx, pod.Name, "put", filePath("data", "file"), "waited")
		written <- err
	}()
	a, err := t.awaitAnswer(ctx, "pod", pod.Name, reason)
	if err != nil {
		return err
	}
	select {
	case err := <-written:
		return fmt.Errorf("the write to the frozen filesystem has ended: %w", err)
	default:
	}
	_, path, named := strings.Cut(a.Quote, "mounted at ")
	if !named || !strings.Contains(a.Remediation, advice) {
		return fmt.Errorf("the answer has no path or does not say to run %s: %+v", advice, a)
	}
	if err := t.fsfreeze(ctx, node, "--unfreeze", path); err != nil {
		return err
	}
	thawed = true
	if err := <-written; err != nil {
		return err
	}
	return t.expect(ctx, "waited", pod.Name, "cat", filePath("data", "file"))
}

func namesDeletedPV(ctx context.Context, t *bench) error {
	pod, pv, err := t.volume(ctx, "4Gi")
	if err != nil {
		return err
	}
	if _, err := t.probe(ctx, pod.Name, "put", filePath("data", "file"), "from before"); err != nil {
		return err
	}
	if err := t.kube.CoreV1().PersistentVolumes().Delete(ctx, pv.Name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	for kind, name := range map[string]string{"pod": pod.Name, "pvc": "data", "pv": pv.Name} {
		a, err := t.awaitAnswer(ctx, kind, name, "PersistentVolumeNotAttachable")
		if err != nil {
			return err
		}
		if !strings.Contains(a.Remediation, "guide delete-and-retain") {
			return fmt.Errorf("the answer does not name the guide: %+v", a)
		}
	}
	if err := t.follow(ctx, "delete-and-retain", "A PersistentVolume that was deleted by mistake", "PV="+pv.Name); err != nil {
		return err
	}
	if _, err := t.awaitAnswer(ctx, "pvc", "data", "Healthy"); err != nil {
		return err
	}
	after, err := t.kube.CoreV1().Pods(t.namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if after.UID != pod.UID || after.Status.Phase != corev1.PodRunning {
		return fmt.Errorf("the pod did not run on: got %s of UID %s, want UID %s", after.Status.Phase, after.UID, pod.UID)
	}
	t.later("delete the disk with its claim", func(ctx context.Context) error {
		policy := []byte(`{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`)
		_, err := t.kube.CoreV1().PersistentVolumes().Patch(ctx, pv.Name, types.MergePatchType, policy, metav1.PatchOptions{})
		return err
	})
	if err := t.again(ctx, pod.Name); err != nil {
		return err
	}
	return t.expect(ctx, "from before", pod.Name, "cat", filePath("data", "file"))
}

// follow runs the commands below a heading of a guide.
func (t *bench) follow(ctx context.Context, guide, heading string, env ...string) error {
	root, err := source.Root()
	if err != nil {
		return err
	}
	blocks, err := source.ReadGuide(filepath.Join(root, "docs", "guides", guide+".md"))
	if err != nil {
		return err
	}
	commands, err := blocks.Section(heading)
	if err != nil {
		return err
	}
	return t.shell(ctx, strings.Join(commands, "\n"), env...)
}

// shell runs commands of a guide or of an answer in a folder of their own.
func (t *bench) shell(ctx context.Context, commands string, env ...string) error {
	dir, err := os.MkdirTemp("", "commands-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", commands)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), append(env, "KUBECONFIG="+t.Dir.Kubeconfig(),
		"PATH="+filepath.Dir(t.kubectl)+":"+os.Getenv("PATH"))...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run\n%s: %w: %s", commands, err, bytes.TrimSpace(out))
	}
	return nil
}

func namesDeletedRecord(ctx context.Context, t *bench) error {
	pod, pv, err := t.volume(ctx, "4Gi")
	if err != nil {
		return err
	}
	if _, err := t.probe(ctx, pod.Name, "put", filePath("data", "file"), "from before"); err != nil {
		return err
	}
	name, err := t.azVolumeOf(ctx, pv)
	if err != nil {
		return err
	}
	if err := t.dyn.Resource(azVolumes).Namespace(cluster.DriverNamespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	if _, err := t.awaitAnswer(ctx, "pod", pod.Name, "VolumeDeletionHeld"); err != nil {
		return err
	}
	if err := t.again(ctx, pod.Name); err != nil {
		return err
	}
	return t.expect(ctx, "from before", pod.Name, "cat", filePath("data", "file"))
}

func namesSnapshot(ctx context.Context, t *bench) error {
	if _, err := t.bound(ctx, "4Gi"); err != nil {
		return err
	}
	broken := newObject("VolumeSnapshot", "broken")
	broken.Object["spec"] = map[string]any{
		"volumeSnapshotClassName": t.namespace + "-does-not-exist",
		"source":                  map[string]any{"persistentVolumeClaimName": "data"},
	}
	mine := t.dyn.Resource(snapshots).Namespace(t.namespace)
	if _, err := mine.Create(ctx, broken, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make VolumeSnapshot: %w", err)
	}
	t.later("remove the finalizer", func(ctx context.Context) error {
		return t.patchClaim(ctx, "data", `{"metadata":{"finalizers":null}}`)
	})
	// snapshot-controller keeps the source of a snapshot that it takes, also after that for the broken one.
	if _, err := t.snapshot(ctx, "good", "data"); err != nil {
		return err
	}
	claim, err := t.getClaim(ctx, "data")
	if err != nil {
		return err
	}
	if !slices.Contains(claim.Finalizers, sourceFinalizer) {
		return fmt.Errorf("snapshot-controller does not keep the claim: its finalizers are %v", claim.Finalizers)
	}
	if err := t.deleteClaim(ctx, "data"); err != nil {
		return err
	}
	const reason = "FinalizerWaits"
	a, err := t.awaitAnswer(ctx, "pvc", "data", reason)
	if err != nil {
		return err
	}
	if !strings.Contains(a.Message, "broken") {
		return fmt.Errorf("the answer does not name the snapshot: %+v", a)
	}
	if err := mine.Delete(ctx, "broken", metav1.DeleteOptions{}); err != nil {
		return err
	}
	return await(ctx, "the claim is gone by what the answer says", func(ctx context.Context) error {
		_, err := t.getClaim(ctx, "data")
		if err != nil {
			return gone(err)
		}
		a, err := t.why(ctx, "pvc", "data")
		if err != nil {
			return err
		}
		const patch = "kubectl patch pvc data -n "
		if i := strings.Index(a.Remediation, patch); a.Reason == reason && i >= 0 {
			return t.shell(ctx, a.Remediation[i:])
		}
		return fmt.Errorf("the claim is there, and the answer is %+v", a)
	})
}
