package imds

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Versions of the API that are served; all answer alike.
var (
	instanceVersions = []string{
		"2017-03-01", "2017-04-02", "2017-08-01", "2017-10-01", "2017-12-01", "2018-02-01", "2018-04-02", "2018-10-01",
		"2019-02-01", "2019-03-11",
		"2019-04-30", "2019-06-01", "2019-06-04", "2019-08-01", "2019-08-15", "2019-11-01", "2020-06-01", "2020-07-15",
		"2020-09-01", "2020-10-01",
		"2020-12-01", "2021-01-01", "2021-02-01", "2021-03-01", "2021-05-01", "2021-10-01", "2021-11-01", "2021-11-15",
		"2021-12-13", "2023-07-01", "2023-11-15",
	}
	identityVersions = []string{"2018-02-01", "2019-08-01", "2019-11-01", "2020-06-01"}
	eventVersions    = []string{"2017-03-01", "2017-08-01", "2017-11-01", "2019-01-01", "2019-04-01", "2019-08-01", "2020-07-01"}
)

// newestShown is how many versions the error for an unknown version lists.
const newestShown = 3

// Server answers as the metadata service of one VM.
type Server struct {
	Source Source
	Signer *Signer
	// Events are the scheduled events of the VM.
	Events Events
	// Logger receives failures of the source. Nil is slog's default.
	Logger *slog.Logger
}

// Handler is the service.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/metadata/versions", s.versions)
	mux.HandleFunc("/metadata/instance", s.instance)
	mux.HandleFunc("/metadata/instance/", s.instance)
	mux.HandleFunc("/metadata/identity/oauth2/token", s.token)
	mux.HandleFunc("/metadata/scheduledevents", s.scheduledEvents)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { refuse(w, http.StatusNotFound, "Not found") })
	return mux
}

// admit holds the requests to the rules that keep a tricked web server in the VM from being used to
// reach the service: the Metadata header must be there, and no proxy's header.
func admit(w http.ResponseWriter, r *http.Request, complain func(w http.ResponseWriter, status int, what string),
	methods ...string) bool {
	switch {
	case !strings.EqualFold(r.Header.Get("Metadata"), "true"):
		complain(w, http.StatusBadRequest, "Bad request. Required metadata header not specified")
	case r.Header.Get("X-Forwarded-For") != "":
		complain(w, http.StatusBadRequest, "Bad request. Requests must not contain an X-Forwarded-For header")
	case !slices.Contains(methods, r.Method):
		complain(w, http.StatusMethodNotAllowed, "Method not allowed")
	default:
		return true
	}
	return false
}

// admitVersion is admit, for a path that wants a version too.
func admitVersion(w http.ResponseWriter, r *http.Request, versions []string, methods ...string) bool {
	if !admit(w, r, refuse, methods...) {
		return false
	}
	if slices.Contains(versions, r.URL.Query().Get("api-version")) {
		return true
	}
	newest := slices.Clone(versions[max(0, len(versions)-newestShown):])
	slices.Reverse(newest)
	answer(w, http.StatusBadRequest, map[string]any{
		"error":           "Bad request. api-version is invalid or was not specified in the request.",
		"newest-versions": newest,
	})
	return false
}

func (s *Server) versions(w http.ResponseWriter, r *http.Request) {
	if admit(w, r, refuse, http.MethodGet) {
		answer(w, http.StatusOK, map[string]any{"apiVersions": instanceVersions})
	}
}

func (s *Server) instance(w http.ResponseWriter, r *http.Request) {
	if !admitVersion(w, r, instanceVersions, http.MethodGet) {
		return
	}
	instance, ok := s.ask(w, r)
	if !ok {
		return
	}
	document, err := instance.document()
	if err != nil {
		s.fail(w, r, err)
		return
	}
	node, ok := lookUp(document, strings.TrimPrefix(r.URL.Path, "/metadata/instance"))
	format := r.URL.Query().Get("format")
	switch {
	case !ok:
		refuse(w, http.StatusNotFound, "Not found")
	case format == "text":
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte(text(node)))
	case format != "" && format != "json":
		refuse(w, http.StatusBadRequest, "Bad request. The format must be json or text")
	case isLeaf(node):
		// A leaf has no JSON form; Azure wants format=text spelled out.
		refuse(w, http.StatusBadRequest, "Bad request. A leaf node needs format=text")
	default:
		answer(w, http.StatusOK, node)
	}
}

// token serves the managed identity. Its errors have the form of OAuth, unlike those of the rest.
func (s *Server) token(w http.ResponseWriter, r *http.Request) {
	if !admit(w, r, refuseToken, http.MethodGet) {
		return
	}
	query := r.URL.Query()
	if !slices.Contains(identityVersions, query.Get("api-version")) {
		refuseToken(w, http.StatusBadRequest, "Required query variable 'api-version' is missing or not supported")
		return
	}
	resource := query.Get("resource")
	if resource == "" {
		refuseToken(w, http.StatusBadRequest, "Required query variable 'resource' is missing")
		return
	}
	instance, ok := s.ask(w, r)
	if !ok {
		return
	}
	identity, ok := instance.identity(query)
	switch {
	case !ok && len(instance.Identities) > 1 && !selects(query):
		refuseToken(w, http.StatusBadRequest,
			"Multiple user assigned identities exist, please specify the clientId / resourceId of the identity in the token request")
		return
	case !ok:
		refuseToken(w, http.StatusBadRequest, "Identity not found")
		return
	}
	t, err := s.Signer.sign(identity, instance.ResourceID, resource)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	life := strconv.FormatInt(int64(t.expiry.Sub(t.issued)/time.Second), 10)
	answer(w, http.StatusOK, map[string]string{
		"access_token":   t.signed,
		"client_id":      identity.ClientID,
		"expires_in":     life,
		"expires_on":     strconv.FormatInt(t.expiry.Unix(), 10),
		"ext_expires_in": life,
		"not_before":     strconv.FormatInt(t.issued.Unix(), 10),
		"resource":       resource,
		"token_type":     "Bearer",
	})
}

// selectors are the variables of a token request that name an identity.
var selectors = map[string]func(Identity) string{
	"client_id":  func(id Identity) string { return id.ClientID },
	"object_id":  func(id Identity) string { return id.ObjectID },
	"msi_res_id": func(id Identity) string { return id.ResourceID },
	"mi_res_id":  func(id Identity) string { return id.ResourceID },
}

func selects(query map[string][]string) bool {
	for name := range selectors {
		if len(query[name]) > 0 && query[name][0] != "" {
			return true
		}
	}
	return false
}

// identity picks the identity that a token request asks for. Without a selector it is the
// system-assigned one, or the only one.
func (i Instance) identity(query map[string][]string) (Identity, bool) {
	for name, field := range selectors {
		if len(query[name]) == 0 || query[name][0] == "" {
			continue
		}
		at := slices.IndexFunc(i.Identities, func(id Identity) bool { return strings.EqualFold(field(id), query[name][0]) })
		if at < 0 {
			return Identity{}, false
		}
		return i.Identities[at], true
	}
	for _, id := range i.Identities {
		if id.ResourceID == "" || len(i.Identities) == 1 {
			return id, true
		}
	}
	return Identity{}, false
}

func (s *Server) ask(w http.ResponseWriter, r *http.Request) (Instance, bool) {
	instance, err := s.Source.Instance(r.Context())
	if err != nil {
		s.fail(w, r, err)
		return Instance{}, false
	}
	return instance, true
}

// fail answers what Azure's clients take as a reason to try again.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	logger := s.Logger
	if logger == nil {
		logger = slog.Default()
	}
	logger.ErrorContext(r.Context(), "metadata request failed", "path", r.URL.Path, "error", err)
	refuse(w, http.StatusInternalServerError, "Internal server error. Please retry")
}

func refuse(w http.ResponseWriter, status int, what string) {
	answer(w, status, map[string]string{"error": what})
}

func refuseToken(w http.ResponseWriter, status int, what string) {
	answer(w, status, map[string]string{"error": "invalid_request", "error_description": what})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Server", "IMDS")
	w.WriteHeader(status)
	// The status is sent: a caller that has closed the connection needs no report.
	_ = json.NewEncoder(w).Encode(body)
}
