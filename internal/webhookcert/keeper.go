// Package webhookcert keeps the certificate of an admission webhook that several replicas serve.
// The certificate, its key and its authorities are in a Secret, which must exist. The first replica
// that finds no certificate there, or a certificate that is two thirds of its life old, writes a
// new one. Each replica serves the certificate in the Secret, and writes the authorities into the
// webhook's configuration.
//
// Invariants:
//   - What a replica serves is trusted, also while the others serve another certificate: a new one
//     is served after it is in the Secret, and its authority is trusted together with the
//     authority of the certificate before.
//   - A write that races with another replica's write fails, and the loser reads the winner's
//     certificate.
//   - Only the Secret and the configuration of that name are read and written.
package webhookcert

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// +kubebuilder:rbac:groups="",namespace=azure-disk-csi,resources=secrets,resourceNames=azuredisk-scheduler-webhook,verbs=get;update
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations,resourceNames=azuredisk-scheduler,verbs=get;patch

const (
	// bundleKey is the key of the authorities in the Secret. The others are the keys of the type
	// kubernetes.io/tls.
	bundleKey = "ca.crt"
	// defaultLifetime of a certificate.
	defaultLifetime = 365 * 24 * time.Hour
	// checkInterval is the time between two looks at the Secret and the configuration, which other
	// programs may change.
	checkInterval = time.Minute
	// conflictInterval is the time after a write that lost a race. What the winner wrote can be
	// read at once.
	conflictInterval = 100 * time.Millisecond
	// retryInterval is the time after a look that failed.
	retryInterval = 5 * time.Second
)

var errNoCertificate = errors.New("the webhook has no certificate yet")

// Options of New.
type Options struct {
	// Client reads from the API server, not from a cache.
	Client client.Client
	// Secret holds the certificate.
	Secret client.ObjectKey
	// Configuration is the name of the MutatingWebhookConfiguration.
	Configuration string
	// Names are the DNS names by which clients call the webhook.
	Names []string
	Clock clock.Clock
}

// Keeper keeps the certificate. It is safe for concurrent use.
type Keeper struct {
	Options
	lifetime time.Duration
	current  atomic.Pointer[tls.Certificate]
}

// New makes a Keeper without a certificate.
func New(o Options) *Keeper { return &Keeper{Options: o, lifetime: defaultLifetime} }

// NewClient makes a client for the objects that a Keeper reads and writes. It asks the API server
// nothing, so it can be made while the API server is not reachable.
func NewClient(config *rest.Config) (client.Client, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, admissionregistrationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
	mapper.Add(admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingWebhookConfiguration"), meta.RESTScopeRoot)
	return client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
}

// GetCertificate returns the certificate to serve. It is for tls.Config.
func (k *Keeper) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if current := k.current.Load(); current != nil {
		return current, nil
	}
	return nil, errNoCertificate
}

// Start keeps the certificate until ctx is done. A failure is logged and tried again: a program
// that has other work does not end because of it.
func (k *Keeper) Start(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx).WithValues("secret", k.Secret.String(), "configuration", k.Configuration)
	for {
		pause := checkInterval
		err := k.check(logr.NewContext(ctx, log))
		switch {
		case err == nil || ctx.Err() != nil:
		case apierrors.IsConflict(err):
			pause = conflictInterval
			log.Info("another replica was first", "conflict", err.Error())
		default:
			pause = retryInterval
			log.Error(err, "cannot keep the certificate of the webhook")
		}
		timer := k.Clock.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
		}
	}
}

// check reads the Secret, replaces its certificate if necessary, serves it, and lets the API server
// trust it.
func (k *Keeper) check(ctx context.Context) error {
	var secret corev1.Secret
	if err := k.Client.Get(ctx, k.Secret, &secret); err != nil {
		return fmt.Errorf("read the Secret: %w", err)
	}
	now := k.Clock.Now()
	there := pair{
		certificate: secret.Data[corev1.TLSCertKey],
		key:         secret.Data[corev1.TLSPrivateKeyKey],
		bundle:      secret.Data[bundleKey],
	}
	loaded, err := there.load(k.Names, now)
	if err != nil || isDue(loaded.Leaf, now) {
		if there, loaded, err = k.replace(ctx, &secret, there, now); err != nil {
			return err
		}
	}
	k.current.Store(loaded)
	return k.trust(ctx, there.bundle)
}

// replace writes a new certificate into the Secret. If another replica was first, it fails.
func (k *Keeper) replace(ctx context.Context, secret *corev1.Secret, former pair, now time.Time) (pair, *tls.Certificate, error) {
	created, err := create(k.Names, k.lifetime)
	if err != nil {
		return pair{}, nil, err
	}
	created = created.succeed(former, now)
	loaded, err := created.load(k.Names, now)
	if err != nil {
		return pair{}, nil, err
	}
	secret.Data = map[string][]byte{
		corev1.TLSCertKey:       created.certificate,
		corev1.TLSPrivateKeyKey: created.key,
		bundleKey:               created.bundle,
	}
	if err := k.Client.Update(ctx, secret); err != nil { //nolint:forbidigo // the Secret's data is written as a whole
		return pair{}, nil, fmt.Errorf("write a new certificate into the Secret: %w", err)
	}
	logr.FromContextOrDiscard(ctx).Info("made a certificate for the webhook", "names", k.Names, "until", loaded.Leaf.NotAfter)
	return created, loaded, nil
}

// trust writes the authorities into every webhook of the configuration.
func (k *Keeper) trust(ctx context.Context, bundle []byte) error {
	var configuration admissionregistrationv1.MutatingWebhookConfiguration
	err := k.Client.Get(ctx, client.ObjectKey{Name: k.Configuration}, &configuration)
	if err != nil {
		return fmt.Errorf("read the webhook's configuration: %w", err)
	}
	before := configuration.DeepCopy()
	changed := false
	for i := range configuration.Webhooks {
		of := &configuration.Webhooks[i].ClientConfig
		changed = changed || !bytes.Equal(of.CABundle, bundle)
		of.CABundle = bundle
	}
	if !changed {
		return nil
	}
	// A strategic merge names the changed fields only: a newer API server may know fields that this
	// program does not.
	if err := k.Client.Patch(ctx, &configuration,
		client.StrategicMergeFrom(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("write the authorities into the webhook's configuration: %w", err)
	}
	return nil
}
