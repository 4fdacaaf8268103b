// Package credential signs in to Azure. It reads azure.json and the environment, makes the
// credential that they name, and follows changes of azure.json and of the files that they name.
package credential

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
)

const (
	// defaultReloadInterval is how often a Source is read. The kubelet takes about a minute to
	// update a mounted Secret, so a shorter interval has no effect.
	defaultReloadInterval = 10 * time.Second
	// retryAfter is how long to wait before a changed credential that Azure refused is tried again.
	// A new credential is not known everywhere at Azure at once.
	retryAfter   = 30 * time.Second
	tokenTimeout = 30 * time.Second
)

// Options of Open.
type Options struct {
	// Source of the configuration.
	Source Source
	// Interval between two readings; defaultReloadInterval if 0.
	Interval time.Duration
	// Clock of the intervals; the real one if nil.
	Clock clock.Clock
	// Dial makes connections; the net package's if nil.
	Dial Dialer
	// Metrics to register with; none if nil.
	Metrics prometheus.Registerer
	// Logger; silent if it is the zero value.
	Logger logr.Logger
}

// Change is the outcome of a reload.
type Change struct {
	// Refused says that the change was refused, and that the previous credential stays in use.
	Refused bool
	// Message says what changed, or why it was refused. It holds no secret.
	Message string
}

// Credentials signs in to Azure, and follows changes while it runs: it uses a new secret,
// certificate, identity or CA bundle as soon as Azure has given a token for it. It reports a change
// that is broken or that Azure refuses, and keeps the previous credential. Changes of the
// subscription, resource group, location and cloud take effect with the next start.
//
// Credentials is the credential and the transport of a client of Azure. All methods may be called
// concurrently.
type Credentials struct {
	options Options
	metrics *metrics
	current atomic.Pointer[signIn]
	first   Config // as it was at the start

	mu        sync.Mutex
	notified  []func(Change)
	refused   [32]byte // print of the content that Azure refused last
	refusedAt time.Time
	lastFault string
}

// signIn is a credential with its transports and the content that it was made from.
type signIn struct {
	material
	transports transports
	credential credential
}

var (
	_ azcore.TokenCredential = (*Credentials)(nil)
	_ policy.Transporter     = (*Credentials)(nil)
)

// Open reads the configuration. It does not ask for a token yet. The error lists all faults.
func Open(ctx context.Context, options Options) (*Credentials, error) {
	if options.Interval <= 0 {
		options.Interval = defaultReloadInterval
	}
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	if options.Logger.GetSink() == nil {
		options.Logger = logr.Discard()
	}
	c := &Credentials{options: options, metrics: newMetrics(options.Metrics)}
	read, err := options.Source.read(ctx)
	if err != nil {
		return nil, err
	}
	c.first = read.config
	made, err := c.make(read)
	if err != nil {
		return nil, err
	}
	c.use(made)
	return c, nil
}

// make makes a signIn.
func (c *Credentials) make(r material) (*signIn, error) {
	t, err := newTransports(r.roots, c.options.Dial)
	if err != nil {
		return nil, err
	}
	made, err := r.config.credential(r.identity, t)
	if err != nil {
		return nil, err
	}
	return &signIn{
		material:   r,
		transports: t,
		credential: made,
	}, nil
}

func (c *Credentials) use(s *signIn) {
	old := c.current.Swap(s)
	c.metrics.taken(c.options.Clock.Now(), s.credential.certificate)
	if old != nil {
		old.transports.close()
	}
}

// Config is the configuration as it was at the start.
func (c *Credentials) Config() Config { return c.first }

// Cloud is the cloud with its endpoints.
func (c *Credentials) Cloud() cloud.Configuration { return c.first.cloudConfiguration() }

// GetToken implements azcore.TokenCredential, with the credential in use.
func (c *Credentials) GetToken(ctx context.Context, options policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return c.current.Load().credential.GetToken(ctx, options)
}

// Do implements policy.Transporter, with the certificates in use.
func (c *Credentials) Do(req *http.Request) (*http.Response, error) {
	return c.current.Load().transports.out.Do(req)
}

// OnChange has f called for each change, and once for each fault. After a change that was not
// refused, clients have to drop the tokens of the previous credential.
func (c *Credentials) OnChange(f func(Change)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notified = append(c.notified, f)
}

// Start follows changes until ctx ends. It is called once.
func (c *Credentials) Start(ctx context.Context) error {
	for {
		timer := c.options.Clock.NewTimer(c.options.Interval)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
			c.Check(ctx)
		}
	}
}

// NeedLeaderElection reports whether every replica follows changes.
func (c *Credentials) NeedLeaderElection() bool { return false }

// Check reads the source and takes a change. Start calls it at each interval.
func (c *Credentials) Check(ctx context.Context) {
	next, err := c.options.Source.read(ctx)
	switch {
	case ctx.Err() != nil:
		return
	case err == nil && next.print == c.current.Load().print:
		c.settled()
		return
	case err == nil && c.triedLately(next.print):
		return
	case err == nil:
		err = c.take(ctx, next)
	}
	if err != nil {
		c.refuse(err)
		return
	}
	c.settled()
}

// triedLately reports whether Azure refused the same content within retryAfter.
func (c *Credentials) triedLately(print [32]byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused == print && c.options.Clock.Since(c.refusedAt) < retryAfter
}

// take uses changed content, if Azure gives a token for it.
func (c *Credentials) take(ctx context.Context, next material) error {
	made, err := c.make(next)
	if err == nil {
		err = c.sameCloud(made)
	}
	if err == nil {
		err = c.try(ctx, made)
	}
	if err != nil {
		c.mu.Lock()
		c.refused, c.refusedAt = next.print, c.options.Clock.Now()
		c.mu.Unlock()
		if made != nil {
			made.transports.close()
		}
		return err
	}
	c.use(made)
	message := "took changed credentials: " + made.config.describe()
	if left := c.leftOut(made.config); left != "" {
		message += "; the change of " + left + " takes effect with the next start"
	}
	c.tell(Change{Message: message})
	return nil
}

// sameCloud refuses a change that would send the tokens of one cloud to another.
func (c *Credentials) sameCloud(made *signIn) error {
	was, is := c.first.cloudConfiguration(), made.config.cloudConfiguration()
	if w, i := was.Services[cloud.ResourceManager], is.Services[cloud.ResourceManager]; w != i {
		return fmt.Errorf("the resource manager changed from %s to %s; restart the controller to use it", w.Endpoint, i.Endpoint)
	}
	return nil
}

// try asks Azure for a token.
func (c *Credentials) try(ctx context.Context, made *signIn) error {
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	audience := made.config.cloudConfiguration().Services[cloud.ResourceManager].Audience
	_, err := made.credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{audience + "/.default"}, EnableCAE: true})
	if err != nil {
		return fmt.Errorf("get a token for %s: %w", made.config.describe(), err)
	}
	return nil
}

// leftOut names the fields whose change takes effect with the next start.
func (c *Credentials) leftOut(now Config) string {
	var changed []string
	for _, f := range []struct{ name, was, is string }{
		{"subscriptionId", c.first.SubscriptionID, now.SubscriptionID},
		{"resourceGroup", c.first.ResourceGroup, now.ResourceGroup},
		{"location", c.first.Location, now.Location}, {"userAgent", c.first.UserAgent, now.UserAgent},
	} {
		if f.was != f.is {
			changed = append(changed, f.name)
		}
	}
	return strings.Join(changed, ", ")
}

// describe names the identity. It holds no secret.
func (c *Config) describe() string {
	who := c.AADClientID
	switch c.identity() {
	case identityManaged:
		if who = c.UserAssignedIdentityID; who == "" {
			who = "system-assigned"
		}
	case identityDataPlane:
		who = c.AADMSIDataPlaneIdentityPath
	default:
	}
	return fmt.Sprintf("%s %s", c.identity(), who)
}

// settled records that the configured credentials are in use.
func (c *Credentials) settled() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastFault, c.refused = "", [32]byte{}
	c.metrics.pending.Set(0)
}

func (c *Credentials) refuse(err error) {
	c.metrics.reloads.WithLabelValues("Refused").Inc()
	c.metrics.pending.Set(1)
	c.mu.Lock()
	known := c.lastFault == err.Error()
	c.lastFault = err.Error()
	c.mu.Unlock()
	if !known {
		c.tell(Change{Refused: true, Message: "refused changed credentials, the previous ones stay in use: " + unwrapped(err)})
	}
}

// unwrapped is the error's text on one line. Errors of Azure's library hold whole answers.
func unwrapped(err error) string {
	lines := strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' })
	return strings.Join(lines, "; ")
}

func (c *Credentials) tell(change Change) {
	if change.Refused {
		c.options.Logger.Error(errors.New(change.Message), "refused changed credentials")
	} else {
		c.options.Logger.Info("took changed credentials", "change", change.Message)
	}
	c.mu.Lock()
	notified := c.notified
	c.mu.Unlock()
	for _, f := range notified {
		f(change)
	}
}
