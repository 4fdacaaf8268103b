package contract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Exchange is a request and its answer.
type Exchange struct {
	Method  string
	URL     *url.URL
	Request []byte // its body
	Status  int
	Header  http.Header // of the answer
	Answer  []byte      // its body
}

// Check returns how an exchange contradicts the description: members that no model has, values of
// another JSON type, required members that are missing, and in requests read-only members and null.
func (d *Description) Check(e Exchange) (faults []string) {
	c, ok := d.find(e.Method, e.URL.Path)
	if !ok {
		return d.checkOther(e)
	}
	found := checker{description: d}
	if got := e.URL.Query().Get("api-version"); c.version != "" && got != c.version {
		found.add("request", "the api-version is %q, want %q", got, c.version)
	}
	found.request = true
	found.body("request", c.request, e.Request)
	found.request = false
	switch {
	case e.Status >= http.StatusBadRequest:
		found.refusal(e.Answer)
	case !slices.Contains(c.statuses, strings.ReplaceAll(http.StatusText(e.Status), " ", "")):
		found.add("answer", "the status is %d, want one of %v", e.Status, c.statuses)
	case len(e.Answer) > 0:
		found.body("answer", c.answer, e.Answer)
	case e.Method == http.MethodGet:
		found.add("answer", "no body, want %s", c.answer)
	}
	if e.Status == http.StatusAccepted && e.Header.Get("Azure-AsyncOperation")+e.Header.Get("Location") == "" {
		found.add("answer", "202 without the URL of an operation")
	}
	for i, f := range found.faults {
		found.faults[i] = fmt.Sprintf("%s (%s %s): %s", c.name, e.Method, e.URL.Path, f)
	}
	return found.faults
}

func (d *Description) find(method, path string) (call, bool) {
	segments := strings.Split(strings.Trim(path, "/"), "/")
	for _, c := range d.calls {
		if c.method == method && slices.EqualFunc(c.path, segments, func(want, got string) bool {
			return strings.HasPrefix(want, "{") && got != "" || strings.EqualFold(want, got)
		}) {
			return c, true
		}
	}
	return call{}, false
}

// checkOther checks the calls that no client of the SDK makes by itself: polls of operations. Calls
// outside of subscriptions, such as those for tokens, are not described.
func (d *Description) checkOther(e Exchange) []string {
	path := strings.ToLower(e.URL.Path)
	if !strings.HasPrefix(path, "/subscriptions/") {
		return nil
	}
	if !strings.Contains(path, "/operations/") && !strings.Contains(path, "/diskoperations/") {
		return []string{fmt.Sprintf("%s %s: the SDK has no such call", e.Method, e.URL.Path)}
	}
	found := checker{description: d}
	switch {
	case e.Status >= http.StatusBadRequest:
		found.refusal(e.Answer)
	case e.URL.Query().Get("monitor") == "":
		found.operation(e.Answer)
	}
	return found.faults
}

// checker collects faults.
type checker struct {
	description *Description
	request     bool
	faults      []string
}

func (c *checker) add(at, format string, args ...any) {
	c.faults = append(c.faults, at+": "+fmt.Sprintf(format, args...))
}

func (c *checker) body(at, model string, raw []byte) {
	if model == "" && len(raw) > 0 {
		c.add(at, "there is a body, want none")
	}
	if model == "" {
		return
	}
	if v, ok := c.decode(at, raw); ok {
		c.model(at, model, v)
	}
}

func (c *checker) decode(at string, raw []byte) (v any, ok bool) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		c.add(at, "the body is no JSON: %v", err)
		return nil, false
	}
	return v, true
}

func (c *checker) model(at, name string, v any) {
	object, ok := v.(map[string]any)
	if !ok {
		c.add(at, "%T, want an object of the model %s", v, name)
		return
	}
	members := c.description.models[name]
	for _, key := range slices.Sorted(maps.Keys(object)) {
		m, ok := members[key]
		switch at := at + "." + key; {
		case !ok:
			c.add(at, "the model %s has no such member", name)
		case object[key] == nil:
			c.add(at, "null, which no member of %s may be", name)
		case c.request && m.readOnly:
			c.add(at, "read-only in %s", name)
		default:
			c.value(at, m.shape, object[key])
		}
	}
	for key, m := range members {
		if _, ok := object[key]; !ok && m.required && !m.readOnly {
			c.add(at+"."+key, "missing, and required in %s", name)
		}
	}
}

func (c *checker) value(at string, shape ast.Expr, v any) {
	switch s := shape.(type) {
	case *ast.StarExpr:
		c.value(at, s.X, v)
	case *ast.ArrayType:
		list, ok := v.([]any)
		if !ok {
			c.add(at, "%T, want an array", v)
		}
		for i, item := range list {
			c.value(fmt.Sprintf("%s[%d]", at, i), s.Elt, item)
		}
	case *ast.MapType:
		object, ok := v.(map[string]any)
		if !ok {
			c.add(at, "%T, want an object", v)
		}
		for key, item := range object {
			c.value(at+"."+key, s.Value, item)
		}
	case *ast.SelectorExpr: // time.Time
		text, _ := v.(string)
		if _, err := time.Parse(time.RFC3339Nano, text); err != nil {
			c.add(at, "%v, want a time", v)
		}
	case *ast.Ident:
		c.named(at, s.Name, v)
	}
}

func (c *checker) named(at, name string, v any) {
	number, _ := v.(json.Number)
	_, isText := v.(string)
	_, isBool := v.(bool)
	whole, notWhole := number.Int64()
	switch {
	case name == "any":
	case (name == "string" || c.description.texts[name]) && !isText:
		c.add(at, "%v, want a string", v)
	case name == "bool" && !isBool:
		c.add(at, "%v, want true or false", v)
	case (name == "int32" || name == "int64") && notWhole != nil,
		name == "int32" && (whole > math.MaxInt32 || whole < math.MinInt32):
		c.add(at, "%v, want an %s", v, name)
	case strings.HasPrefix(name, "float") && number == "":
		c.add(at, "%v, want a number", v)
	case c.description.models[name] != nil:
		c.model(at, name, v)
	}
}

// refusal checks the body of a refusal: {"error": {...}}, as Resource Manager documents it.
func (c *checker) refusal(raw []byte) {
	v, ok := c.decode("answer", raw)
	if !ok {
		return
	}
	document, _ := v.(map[string]any)
	fault, _ := document["error"].(map[string]any)
	code, _ := fault["code"].(string)
	message, _ := fault["message"].(string)
	if len(document) != 1 || code == "" || message == "" {
		c.add("answer", "%s, want an error with code and message", raw)
	}
	for key := range fault {
		if !slices.Contains([]string{"code", "message", "target", "details", "innererror", "additionalInfo"}, key) {
			c.add("answer.error."+key, "an error has no such member")
		}
	}
}

// operation checks the document of an operation, as Resource Manager documents it.
func (c *checker) operation(raw []byte) {
	v, ok := c.decode("operation", raw)
	if !ok {
		return
	}
	document, _ := v.(map[string]any)
	known := []string{"id", "name", "status", "percentComplete", "startTime", "endTime", "properties", "error"}
	for key := range document {
		if !slices.Contains(known, key) {
			c.add("operation."+key, "the document of an operation has no such member")
		}
	}
	if status, _ := document["status"].(string); status == "" {
		c.add("operation.status", "missing")
	}
	properties, _ := document["properties"].(map[string]any)
	output, _ := properties["output"].(map[string]any)
	switch kind, _ := output["type"].(string); kind {
	case "Microsoft.Compute/disks":
		c.model("operation.properties.output", "Disk", output)
	case "Microsoft.Compute/snapshots":
		c.model("operation.properties.output", "Snapshot", output)
	}
}
