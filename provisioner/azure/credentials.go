package azure

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
	// DefaultReloadInterval is how often a Source is read again. The kubelet takes about a minute to bring a changed Secret to a
	// pod, so that more often would not be noticed.
	DefaultReloadInterval = 10 * time.Second
	// tryAgainAfter is how long a changed credential that Azure refused is left before it is tried again: what was made a moment ago is not known
	// everywhere yet.
	tryAgainAfter = 30 * time.Second
	tokenTimeout  = 30 * time.Second
)

// CredentialsOptions are the options of OpenCredentials.
type CredentialsOptions struct {
	// Source of the configuration.
	Source Source
	// Interval between two readings; DefaultReloadInterval if 0.
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

// CredentialChange tells what became of a changed configuration.
type CredentialChange struct {
	// Refused says that the change is not taken up, and that what was before goes on.
	Refused bool
	// Message for people. It holds no secret.
	Message string
}

// Credentials signs in to Azure, and takes up changed credentials while it runs: a new secret, certificate, identity or CA bundle
// takes the place of the old one once a token was got with it. What is broken, or what Azure does not take, is told of, and
// the old one goes on. Subscription, resource group, location and cloud are those of the first reading for good.
//
// It is the credential and the transport of a Cloud. All methods may be called concurrently.
type Credentials struct {
	options CredentialsOptions
	metrics *credentialMetrics
	current atomic.Pointer[signIn]
	first   Config // as it was at the start

	mu        sync.Mutex
	renewed   []func()
	notified  []func(CredentialChange)
	refused   [32]byte // print of the reading that Azure refused last, and when that was
	refusedAt time.Time
	lastFault string
}

// signIn is a credential with all that belongs to it.
type signIn struct {
	material
	ways       ways
	credential credential
}

var (
	_ azcore.TokenCredential = (*Credentials)(nil)
	_ policy.Transporter     = (*Credentials)(nil)
)

// OpenCredentials reads the configuration, and asks an unknown cloud for its endpoints. It asks for no token yet. The error tells of all faults.
func OpenCredentials(ctx context.Context, options CredentialsOptions) (*Credentials, error) {
	if options.Interval <= 0 {
		options.Interval = DefaultReloadInterval
	}
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	if options.Logger.GetSink() == nil {
		options.Logger = logr.Discard()
	}
	m, err := newCredentialMetrics(options.Metrics)
	if err != nil {
		return nil, err
	}
	c := &Credentials{options: options, metrics: m}
	read, err := options.Source.read(ctx)
	if err != nil {
		return nil, err
	}
	c.first = read.config
	made, err := c.make(ctx, read)
	if err != nil {
		return nil, err
	}
	c.first = made.config // with what the cloud said of itself
	c.use(made)
	return c, nil
}

// make makes what signs in from a reading.
func (c *Credentials) make(ctx context.Context, r material) (*signIn, error) {
	w, err := newWays(r.roots, c.options.Dial)
	if err != nil {
		return nil, err
	}
	if err := r.config.Discover(ctx, w.out); err != nil {
		return nil, err
	}
	made, err := r.config.credential(r.identity, w)
	if err != nil {
		return nil, err
	}
	return &signIn{material: r, ways: w, credential: made}, nil
}

func (c *Credentials) use(s *signIn) {
	old := c.current.Swap(s)
	c.metrics.taken(c.options.Clock.Now(), s.credential.certificate)
	if old != nil {
		old.ways.close()
	}
}

// Config is the configuration as it was at the start, with what an unknown cloud said of itself.
func (c *Credentials) Config() Config { return c.first }

// Cloud is the cloud, for Options.Cloud.
func (c *Credentials) Cloud() cloud.Configuration { return c.first.CloudConfiguration() }

// GetToken implements azcore.TokenCredential, with the credential of the moment.
func (c *Credentials) GetToken(ctx context.Context, options policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return c.current.Load().credential.GetToken(ctx, options)
}

// Do implements policy.Transporter, with the certificates of the moment.
func (c *Credentials) Do(req *http.Request) (*http.Response, error) {
	return c.current.Load().ways.out.Do(req)
}

// OnRenewal has f called after each change that was taken up, so that tokens of the credential of before are let go of.
func (c *Credentials) OnRenewal(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.renewed = append(c.renewed, f)
}

// OnChange has f called for each change, and once for each fault however long it lasts.
func (c *Credentials) OnChange(f func(CredentialChange)) {
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

// NeedLeaderElection says that every replica follows changes.
func (c *Credentials) NeedLeaderElection() bool { return false }

// Check looks for a change, and takes it up. Start calls it; who knows of a change need not wait.
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

// triedLately says that Azure refused that very reading a moment ago.
func (c *Credentials) triedLately(print [32]byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused == print && c.options.Clock.Since(c.refusedAt) < tryAgainAfter
}

// take puts a changed reading in force, if Azure gives a token for it.
func (c *Credentials) take(ctx context.Context, next material) error {
	made, err := c.make(ctx, next)
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
			made.ways.close()
		}
		return err
	}
	c.use(made)
	c.mu.Lock()
	renewed := c.renewed
	c.mu.Unlock()
	for _, f := range renewed {
		f()
	}
	message := "changed credentials are in use: " + made.config.describe()
	if left := c.leftOut(made.config); left != "" {
		message += "; the change of " + left + " takes effect with the next start"
	}
	c.tell(CredentialChange{Message: message})
	return nil
}

// sameCloud refuses what would send the tokens of one cloud to another.
func (c *Credentials) sameCloud(made *signIn) error {
	was, is := c.first.CloudConfiguration(), made.config.CloudConfiguration()
	if w, i := was.Services[cloud.ResourceManager], is.Services[cloud.ResourceManager]; w != i {
		return fmt.Errorf("the resource manager changed from %s to %s, which takes a restart", w.Endpoint, i.Endpoint)
	}
	return nil
}

// try asks for a token.
func (c *Credentials) try(ctx context.Context, made *signIn) error {
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	audience := made.config.CloudConfiguration().Services[cloud.ResourceManager].Audience
	_, err := made.credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{audience + "/.default"}, EnableCAE: true})
	if err != nil {
		return fmt.Errorf("Azure gives no token for %s: %w", made.config.describe(), err)
	}
	return nil
}

// leftOut names the fields whose change is not taken up.
func (c *Credentials) leftOut(now Config) string {
	var changed []string
	for _, f := range []struct{ name, was, is string }{
		{"subscriptionId", c.first.SubscriptionID, now.SubscriptionID}, {"resourceGroup", c.first.ResourceGroup, now.ResourceGroup},
		{"location", c.first.Location, now.Location}, {"userAgent", c.first.UserAgent, now.UserAgent},
	} {
		if f.was != f.is {
			changed = append(changed, f.name)
		}
	}
	return strings.Join(changed, ", ")
}

// describe says who signs in, without a secret.
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

// settled forgets a fault that is over.
func (c *Credentials) settled() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastFault, c.refused = "", [32]byte{}
	c.metrics.pending.Set(0)
}

func (c *Credentials) refuse(err error) {
	c.metrics.reloads.WithLabelValues("refused").Inc()
	c.metrics.pending.Set(1)
	c.mu.Lock()
	known := c.lastFault == err.Error()
	c.lastFault = err.Error()
	c.mu.Unlock()
	if !known {
		c.tell(CredentialChange{Refused: true, Message: "changed credentials are not taken up, those of before go on: " + unwrapped(err)})
	}
}

// unwrapped is the error's text on one line: Azure's library writes whole answers.
func unwrapped(err error) string {
	lines := strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' })
	return strings.Join(lines, "; ")
}

func (c *Credentials) tell(change CredentialChange) {
	if change.Refused {
		c.options.Logger.Error(errors.New(change.Message), "changed credentials are refused")
	} else {
		c.options.Logger.Info("changed credentials are taken up", "credentials", change.Message)
	}
	c.mu.Lock()
	notified := c.notified
	c.mu.Unlock()
	for _, f := range notified {
		f(change)
	}
}
