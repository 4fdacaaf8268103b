package credential

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
)

// Source is where the configuration comes from. All of it is read at each interval, so that changes
// are noticed.
type Source struct {
	// Read returns azure.json. If it is nil, everything comes from the variables that Azure's own
	// tools read (AZURE_TENANT_ID, AZURE_CLIENT_ID, AZURE_CLIENT_SECRET,
	// AZURE_CLIENT_CERTIFICATE_PATH, AZURE_CLIENT_CERTIFICATE_PASSWORD, AZURE_FEDERATED_TOKEN_FILE,
	// AZURE_AUTHORITY_HOST, AZURE_SUBSCRIPTION_ID, AZURE_RESOURCE_GROUP, AZURE_LOCATION,
	// AZURE_ENVIRONMENT, AZURE_RESOURCE_MANAGER_ENDPOINT). If these name no secret, certificate or
	// token, the identity is a managed one: the user-assigned one of AZURE_CLIENT_ID, or the
	// system-assigned one.
	Read func(context.Context) ([]byte, error)
	// Name of what Read reads, for messages.
	Name string
	// Env is the environment.
	Env Lookup
	// SubscriptionID, ResourceGroup and Location take precedence over azure.json unless they are
	// "".
	SubscriptionID, ResourceGroup, Location string
	// CAFile is the path of certificates (PEM) that are trusted besides the system's; "" for none.
	CAFile string
}

// FileSource is a Source that reads azure.json from a file.
func FileSource(path string, env Lookup) Source {
	return Source{
		Name: path,
		Env:  env,
		Read: func(context.Context) ([]byte, error) { return os.ReadFile(path) },
	}
}

// material is all content that a credential is made from.
type material struct {
	config Config
	// identity is the content of the file with the identity's certificate, roots the content of the
	// CA bundle.
	identity, roots []byte
	// print is the same for equal content.
	print [sha256.Size]byte
}

// read reads everything. The error names the source and lists all faults.
func (s *Source) read(ctx context.Context) (material, error) {
	r, err := s.readAll(ctx)
	if err != nil && s.Name != "" {
		err = fmt.Errorf("%s: %w", s.Name, err)
	}
	return r, err
}

func (s *Source) readAll(ctx context.Context) (material, error) {
	var r material
	text, err := s.readConfig(ctx, &r.config)
	if err != nil {
		return r, err
	}
	for _, f := range []struct{ field, value *string }{
		{&r.config.SubscriptionID, &s.SubscriptionID}, {&r.config.ResourceGroup, &s.ResourceGroup},
		{&r.config.Location, &s.Location},
	} {
		if *f.value != "" {
			*f.field = *f.value
		}
	}
	if r.config, err = r.config.checked(); err != nil {
		return r, err
	}
	if r.identity, err = r.config.identityFile(); err != nil {
		return r, err
	}
	if s.CAFile != "" {
		if r.roots, err = os.ReadFile(s.CAFile); err != nil {
			return r, fmt.Errorf("read the CA bundle: %w", err)
		}
	}
	r.print = fingerprint(text, r.identity, r.roots)
	return r, nil
}

func (s *Source) readConfig(ctx context.Context, c *Config) (text []byte, err error) {
	if s.Read == nil {
		c.fillFrom(s.Env)
		return nil, nil
	}
	if text, err = s.Read(ctx); err != nil {
		return nil, fmt.Errorf("read Azure's configuration: %w", err)
	}
	if len(text) == 0 {
		return nil, errors.New("read Azure's configuration: it is empty")
	}
	if *c, err = parseConfig(text); err != nil {
		return nil, err
	}
	c.overrideBy(s.Env)
	return text, nil
}

func fingerprint(parts ...[]byte) (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, p := range parts {
		_ = binary.Write(h, binary.BigEndian, uint64(len(p))) // writing to a hash cannot fail
		_, _ = h.Write(p)
	}
	h.Sum(sum[:0])
	return sum
}
