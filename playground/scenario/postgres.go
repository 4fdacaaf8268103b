package scenario

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/azuredisk-csi/azuredisk/playground/recorder"
	"github.com/azuredisk-csi/azuredisk/playground/scenario/observer"
)

const (
	postgresPort = 5432
	// postgresUser is the user of PostgreSQL, which refuses to run as root. Each /etc/passwd has it.
	postgresUser = 65534
	// startPostgres makes a database where there is none, runs a load beside the clients, and becomes
	// PostgreSQL. The load is a transaction every 20 ms, each a few KiB of log to replay after a crash.
	startPostgres = `set -e
bin=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1)
export PGDATA=/data/pgdata PGHOST=/tmp PGUSER=postgres
if [ ! -s $PGDATA/postgresql.conf ]; then
  $bin/initdb --auth=trust --username=postgres --no-locale --encoding=UTF8
  echo 'host all all all trust' >>$PGDATA/pg_hba.conf
fi
chmod 0700 $PGDATA # the kubelet gives the group of the volume more than PostgreSQL accepts
(until $bin/pg_isready -q; do sleep 0.2; done
 $bin/psql -qc 'SELECT 1 FROM pgbench_accounts LIMIT 1' >/dev/null 2>&1 || $bin/pgbench -q -i -s 2
 exec $bin/pgbench -n -c 2 -R 50 -T 86400 >/dev/null) &
exec $bin/postgres -c listen_addresses=* -c unix_socket_directories=/tmp
`
)

// PostgresService is the address of the database of a workload with Postgres.
func (w Workload) PostgresService() string { return w.Name }

// runPostgres has the pod run the PostgreSQL that is installed on its node, in place of the recorder.
func runPostgres(pod *corev1.PodSpec) {
	pod.SecurityContext = &corev1.PodSecurityContext{
		RunAsUser:  ptr.To[int64](postgresUser),
		RunAsGroup: ptr.To[int64](postgresUser),
		FSGroup:    ptr.To[int64](postgresUser),
	}
	pod.TerminationGracePeriodSeconds = ptr.To[int64](30)
	c := &pod.Containers[0]
	c.Name = "postgres"
	c.Command, c.Args = []string{"/bin/sh", "-c", startPostgres}, nil
	c.Ports = []corev1.ContainerPort{{ContainerPort: postgresPort}}
	c.ReadinessProbe = &corev1.Probe{
		PeriodSeconds: 1,
		ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{
			Command: []string{"/bin/sh", "-c", "$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1)/pg_isready -q -h /tmp"},
		}},
	}
	for _, host := range []struct{ name, path, to string }{
		{"usr", "/usr", "/usr"},
		{"bin", "/usr/bin", "/bin"},
		{"lib", "/usr/lib", "/lib"},
		{"lib64", "/usr/lib64", "/lib64"},
		{"etc", "/etc", "/etc"},
	} {
		pod.Volumes = append(pod.Volumes, corev1.Volume{
			Name:         host.name,
			VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: host.path}},
		})
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{
			Name:      host.name,
			MountPath: host.to,
			ReadOnly:  true,
		})
	}
}

// ServePostgres makes the Service of the workload's database.
func (e *Environment) ServePostgres(ctx context.Context, w Workload) error {
	_, err := e.Kube.CoreV1().Services(e.Namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: w.PostgresService()},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{observer.AppLabel: w.Name},
			Ports:    []corev1.ServicePort{{Port: postgresPort}},
		},
	}, metav1.CreateOptions{})
	return err
}

// Client is a pod that commits rows to a workload's database.
type Client struct {
	// Name is that of the pod and of the workload at the Collector.
	Name string
	// Timeout is when it gives a transaction up; 0 waits for ever.
	Timeout time.Duration
}

// StartClient starts the client on a node, in place of one of its name that may be there, and blocks
// until it has committed. It compares the table with what all clients of that name have committed.
func (e *Environment) StartClient(ctx context.Context, c Client, w Workload, node string) error {
	pods := e.Kube.CoreV1().Pods(e.Namespace)
	err := pods.Delete(ctx, c.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	began, committed := e.Clock.Now(), int64(0)
	for _, ack := range e.Collector.Received(c.Name).Acks {
		committed = max(committed, ack.Sequence)
	}
	_, err = pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:   c.Name,
			Labels: map[string]string{scenarioLabel: e.Report.Scenario},
		},
		Spec: corev1.PodSpec{
			NodeName:                      node,
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: ptr.To[int64](1),
			Containers: []corev1.Container{{
				Name:            "client",
				Image:           e.RecorderRef,
				ImagePullPolicy: corev1.PullNever,
				Args: []string{"client",
					fmt.Sprintf("--database=postgres://postgres@%s:%d/postgres?sslmode=disable", w.PostgresService(), postgresPort),
					"--collector=" + e.collectorURL + "/" + c.Name, "--name=" + c.Name, "--timeout=" + c.Timeout.String(),
					fmt.Sprintf("--committed=%d", committed)},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("start the client %s: %w", c.Name, err)
	}
	_, err = e.AwaitCommit(ctx, c, began, StartTimeout)
	return err
}

// LostCommits starts the client again, so that a new connection compares the table with what was committed, and
// returns how many commits were acknowledged, and what is said of those that are not there.
func (e *Environment) LostCommits(ctx context.Context, c Client, w Workload, node string) (commits int, lost []string,
	err error) {
	if err := e.StartClient(ctx, c, w, node); err != nil {
		return 0, nil, err
	}
	received := e.Collector.Received(c.Name)
	for _, event := range received.Events {
		if event.Kind == recorder.EventFailed {
			lost = append(lost, event.Detail)
		}
	}
	return len(received.Acks), lost, nil
}

// AwaitCommit blocks until the client has committed a row after that time, and returns when it did so
// first.
func (e *Environment) AwaitCommit(ctx context.Context, c Client, after time.Time, limit time.Duration) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var first time.Time
	_, err := e.Collector.Await(ctx, c.Name, func(r recorder.Received) bool {
		i := slices.IndexFunc(r.Acks, func(a recorder.Ack) bool { return a.Time.After(after) })
		if i >= 0 {
			first = r.Acks[i].Time
		}
		return i >= 0
	})
	if err != nil {
		return first, fmt.Errorf("wait until %s commits: %w", c.Name, err)
	}
	return first, nil
}

// ClientErrors are the attempts of the client since that time that failed, as it noted them.
func (e *Environment) ClientErrors(ctx context.Context, c Client, since time.Time) ([]recorder.Outcome, error) {
	log, err := e.Kube.CoreV1().Pods(e.Namespace).GetLogs(c.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the log of %s: %w", c.Name, err)
	}
	outcomes, err := recorder.ParseOutcomes(bytes.NewReader(log))
	return slices.DeleteFunc(outcomes, func(o recorder.Outcome) bool { return o.Durable || o.To.Before(since) }), err
}

// LongestGap is the longest time between two commits of the client between those times, and the time from
// the last one to the end.
func (e *Environment) LongestGap(c Client, from, until time.Time) time.Duration {
	return longestPause(e.Collector.Received(c.Name).Acks, from, until)
}
