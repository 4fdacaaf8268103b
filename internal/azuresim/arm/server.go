package arm

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"k8s.io/utils/clock"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/audit"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/auth"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/compute"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/faults"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/latency"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/operations"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/throttle"
)

const maxBody = 4 << 20

// Options of a server.
type Options struct {
	Cloud       *compute.Cloud
	Clock       clock.WithTicker
	Log         *slog.Logger
	Latency     *latency.Sampler
	Faults      *faults.Set
	Audit       *audit.Log
	Authority   *auth.Authority
	CheckTokens bool              // refuse calls without a good token
	Directory   *auth.Directory   // which clients may ask for tokens, and what they may do; nil: every client may do everything
	Limiter     *throttle.Limiter // nil: no quotas
	PageSize    int               // of lists
}

// Server answers Azure Resource Manager calls.
type Server struct {
	Options
	routes []route
	polled sync.Map // IDs of the operations whose first answer was that they are in progress
}

// New returns a server.
func New(o Options) *Server {
	s := &Server{Options: o}
	s.routes = s.table()
	return s
}

// call is a request on its way through the server.
type call struct {
	*http.Request
	route  *route
	params map[string]string
	body   []byte
	claims auth.Claims // of the token, where tokens are checked
}

// reply is what a handler answers. With an operation, the asynchronous headers are added.
type reply struct {
	status   int
	body     any
	op       *operations.Operation
	location bool // an operation's Location header is wanted besides Azure-AsyncOperation
	header   http.Header
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	started := s.Clock.Now()
	rec := audit.Record{
		Time:      started.UTC(),
		Method:    r.Method,
		Path:      r.URL.Path,
		UserAgent: r.UserAgent(),
	}
	w.Header().Set("x-ms-request-id", uuid.NewString())
	w.Header().Set("x-ms-correlation-request-id", uuid.NewString())
	if id := r.Header.Get("x-ms-client-request-id"); id != "" {
		w.Header().Set("x-ms-client-request-id", id)
	}
	w.Header().Set("Cache-Control", "no-cache")
	drop := s.answer(w, r, &rec)
	rec.Millis = s.Clock.Since(started).Milliseconds()
	s.Audit.Add(rec)
	s.Log.Debug("call", "method", r.Method, "path", r.URL.Path, "status", rec.Status, "code", rec.Code, "millis", rec.Millis)
	if drop {
		panic(http.ErrAbortHandler) // closes the connection without an answer
	}
}

// answer does the call and writes the response; drop says that the connection is to be closed
// instead.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, rec *audit.Record) (drop bool) {
	c := &call{Request: r}
	c.route, c.params = s.match(r)
	if c.route == nil {
		rec.API = "Unknown"
		s.refuse(w, rec, armerror.New(404, "InvalidResourceType", "The resource type or action of %s %s could not be found.",
			r.Method, r.URL.Path))
		return false
	}
	rec.API, rec.Kind, rec.Policy, rec.Name = c.route.api, c.route.kind, c.route.policy, c.name()
	target := faults.Call{
		Method: r.Method,
		Kind:   c.route.kind,
		Name:   c.name(),
		Action: c.route.action(),
	}

	before := s.Faults.Strike(faults.Before, target)
	if !s.wait(r.Context(), before.Delay) || before.Disconnect {
		return true
	}
	refusal := s.admit(w, c)
	rec.Client = c.claims.Client
	if refusal == nil {
		refusal = before.Err
	}
	if refusal != nil {
		s.refuse(w, rec, refusal)
		return false
	}
	if !c.route.open && !s.wait(r.Context(), s.Latency.Draw(latency.Request)) {
		return true
	}
	out, err := c.route.handle(c)
	after := s.Faults.Strike(faults.After, target)
	if out.op != nil {
		rec.Operation = out.op.ID
	}
	if !s.wait(r.Context(), after.Delay) || after.Disconnect {
		return true
	}
	if after.Err != nil {
		err = after.Err
	}
	if err != nil {
		s.refuse(w, rec, armerror.From(err))
		return false
	}
	s.write(w, c, rec, out)
	return false
}

// admit checks token, role, api-version, subscription, quota, resource group and name, and reads
// the body.
func (s *Server) admit(w http.ResponseWriter, c *call) *armerror.Error {
	if !c.route.open {
		if s.CheckTokens {
			if e := s.authenticate(w, c); e != nil {
				return e
			}
			if e := s.authorize(c); e != nil {
				return e
			}
		}
		if e := checkVersion(c.route.kind, c.URL.Query().Get("api-version")); e != nil {
			return e
		}
		if sub := c.params["subscription"]; sub != "" {
			if err := s.Cloud.CheckSubscription(sub); err != nil {
				return armerror.From(err)
			}
			if e := s.take(w, c); e != nil {
				return e
			}
		}
		if e := s.checkPlace(c); e != nil {
			return e
		}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, c.Body, maxBody))
	if err != nil {
		return armerror.BadRequest("InvalidRequestContent", "The request content could not be read: %s", err)
	}
	c.body = body
	if e := c.route.checkMembers(body); e != nil {
		return e
	}
	if e := checkTags(c.Method, body); e != nil {
		return e
	}
	if !c.route.open && s.CheckTokens {
		return s.authorizeLinked(c)
	}
	return nil
}

// authenticate checks the token, and that it was issued for Resource Manager.
func (s *Server) authenticate(w http.ResponseWriter, c *call) *armerror.Error {
	claims, e := s.Authority.Check(c.Header.Get("Authorization"))
	if allowed := append([]string{baseURL(c.Request)}, managerAudiences...); e == nil &&
		!slices.Contains(allowed, strings.TrimSuffix(claims.Audience, "/")) {
		e = armerror.New(http.StatusUnauthorized, "InvalidAuthenticationTokenAudience",
			"The access token has been obtained for wrong audience or resource '%s'. It should exactly match with one of the allowed audiences '%s'.",
			claims.Audience, strings.Join(allowed, "','"))
	}
	if e != nil {
		w.Header().Set("WWW-Authenticate", `Bearer authorization_uri="https://login.windows.net/common", error="invalid_token"`)
		return e
	}
	c.claims = claims
	return nil
}

// managerAudiences are those of tokens for Resource Manager, without the slash that may follow,
// besides the simulator's own address.
var managerAudiences = []string{"https://management.azure.com", "https://management.core.windows.net"}

// take counts the call against the quotas.
func (s *Server) take(w http.ResponseWriter, c *call) *armerror.Error {
	if s.Limiter == nil {
		return nil
	}
	v := s.Limiter.Take(throttle.Request{
		Method:       c.Method,
		Subscription: c.params["subscription"],
		Principal:    c.claims.Client,
		Policy:       c.route.policy,
		Resource:     c.resource(),
		Foreign:      c.route.kind == compute.KindScaleSet && c.Method != http.MethodGet && s.Latency.Profile().ForeignQuotas,
	})
	maps.Copy(w.Header(), v.Header)
	return v.Refusal
}

// checkPlace refuses calls in a resource group that does not exist, and names that a resource
// cannot have.
func (s *Server) checkPlace(c *call) *armerror.Error {
	if group := c.params["group"]; group != "" && c.route.kind != "resourceGroups" {
		if _, err := s.Cloud.Group(c.params["subscription"], group); err != nil {
			return armerror.From(err)
		}
	}
	if c.Method == http.MethodPut {
		return compute.CheckName(c.route.kind, c.params["name"])
	}
	return nil
}

// wait lets time pass; false means that the caller has gone.
func (s *Server) wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := s.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *Server) refuse(w http.ResponseWriter, rec *audit.Record, e *armerror.Error) {
	rec.Status, rec.Code = e.Status, e.Code
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((e.RetryAfter+time.Second-1)/time.Second)))
	}
	s.writeJSON(w, e.Status, e.Document())
}

func (s *Server) write(w http.ResponseWriter, c *call, rec *audit.Record, out reply) {
	maps.Copy(w.Header(), out.header)
	if out.op != nil {
		s.asyncHeaders(w, c, out)
	}
	rec.Status = out.status
	if out.body == nil {
		w.WriteHeader(out.status)
		return
	}
	s.writeJSON(w, out.status, out.body)
}

func (s *Server) writeJSON(w http.ResponseWriter, status int, body any) {
	raw, err := json.Marshal(body)
	if err != nil {
		s.Log.Error("cannot encode response", "error", err)
		status, raw = 500, []byte(`{"error":{"code":"InternalServerError","message":"The response could not be encoded."}}`)
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	if _, err := w.Write(raw); err != nil && !errors.Is(err, http.ErrHandlerTimeout) {
		s.Log.Debug("cannot send the response: the client closed the connection", "error", err)
	}
}

// baseURL is how the caller reached the server, perhaps through a proxy, so that links lead back the
// same way.
func baseURL(r *http.Request) string {
	scheme := "http"
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" {
		scheme = "https"
	}
	return scheme + "://" + r.Host
}

// name is how faults and records call the resource: an instance of a uniform scale set is <scale
// set>_<instance>.
func (c *call) name() string {
	name := c.params["name"]
	if instance := c.params["instance"]; instance != "" {
		name += "_" + instance
	}
	return name
}

// resource is what the per-resource quota of the call counts against.
func (c *call) resource() string {
	if id := c.params["operation"]; id != "" {
		return id
	}
	if c.params["name"] == "" {
		return ""
	}
	return strings.Join([]string{c.params["group"], c.route.kind, c.name()}, "/")
}

// id is the resource of the call.
func (c *call) id() compute.ID {
	return compute.ID{
		Subscription: c.params["subscription"],
		Group:        c.params["group"],
		Kind:         c.route.kind,
		Name:         c.params["name"],
		Instance:     c.params["instance"],
	}
}
