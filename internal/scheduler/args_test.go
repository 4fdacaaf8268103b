package scheduler

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

// FuzzArgs compares parseArgs with encoding/json alone.
func FuzzArgs(f *testing.F) {
	for _, seed := range []string{
		`{"Pod":{},"Nodes":null,"NodeNames":["node-a","node-b.c","10"]}`, `{"Pod":{},"NodeNames":["a"]} `, `{"NodeNames":[]}`,
		`{"NodeNames":[""]}`,
		`{"NodeNames":["a"],"NodeNames":["b"]}`, `{"nodenames":["a"],"NodeNames":["b","c"]}`,
		`{"NodeNames":["b"],"nodenames":["a"]}`,
		`{"NodeNames":["a",]}`, `{"NodeNames":["a""b"]}`, `{"NodeNames":["a"`, `{"NodeNames":["a\u0062"]}`, `{"NodeNames":["A"]}`,
		`{"NodeNames":["a" ,"b"]}`,
		`{"Pod":{"NodeNames":["a"]}`, `{"Pod":{"metadata":{"name":"\"NodeNames\":["a"]}`,
		`{"Pod":{"metadata":{"name":"\"NodeNames\":[\"a\"]}`,
		`{"x":"NodeNames":["a"]}`, `["NodeNames":["a"]}`, `"NodeNames":["a"]}`, `{"Pod":{}}{"NodeNames":["a"]}`,
		`{"NodeNames":["a"]}{"NodeNames":["a"]}`, `{"x"NodeNames":["a"]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var want extenderv1.ExtenderArgs
		parser := json.NewDecoder(bytes.NewReader(body))
		wantErr := parser.Decode(&want)
		if _, err := parser.Token(); wantErr == nil && err == nil {
			wantErr = errors.New("something after the arguments")
		}
		space := &workspace{names: []string{"of an earlier request"}}
		got, err := space.parseArgs(bytes.Clone(body))
		if wantErr != nil {
			if err == nil {
				t.Fatalf("%s: got %+v, want %v", body, got, wantErr)
			}
			return
		}
		// What follows correct arguments may be no token at all, which is an error as well.
		if err == nil && !reflect.DeepEqual(*got, want) || err != nil && json.Valid(body) {
			t.Fatalf("%s: got %+v, %v, want %+v", body, got, err, want)
		}
	})
}

func TestTheSchedulersNamesAreParsedWithoutEncodingJSON(t *testing.T) {
	t.Parallel()
	asked := []string{"aks-nodepool1-12345678-vmss000001", "ip-10-0-0-1.internal", "n"}
	body, err := json.Marshal(extenderv1.ExtenderArgs{Pod: pod("data"), NodeNames: &asked})
	if err != nil {
		t.Fatal(err)
	}
	names, begin := endingNames(body, nil)
	if !reflect.DeepEqual(names, asked) || !strings.HasSuffix(string(body[:begin]), `"NodeNames":`) {
		t.Errorf("got %q and %s, want %q", names, body[:begin], asked)
	}
}
