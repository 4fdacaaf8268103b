package client

import (
	"strings"
	"testing"
)

func TestATokenKeepsTheURLThatIsPolledAndNoOther(t *testing.T) {
	for name, test := range map[string]struct{ token, want string }{
		"of an operation with a document": {
			`{"type":"T","token":{"asyncURL":"https://a/o?a=1\u0026c=2","locURL":"https://a/l","origURL":"https://a/r",` +
				`"method":"POST","finalState":"location","state":"InProgress"}}`,
			`{"type":"T","token":{"asyncURL":"https://a/o?a=1&c=2","finalState":"location","method":"POST","state":"InProgress"}}`,
		},
		"of an operation with a location only": {`{"type":"T","token":{"locURL":"https://a/l"}}`, ""},
		"no token of the SDK":                  {"text", ""},
	} {
		t.Run(name, func(t *testing.T) {
			want := test.want
			if want == "" {
				want = test.token
			}
			got := essential(test.token)
			if got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			if again := essential(got); again != got {
				t.Errorf("the token changes when it is read and written again: got %s, want %s", again, got)
			}
		})
	}
}

func TestTheMessageSaysWhatToDoWhereTheAPIIsNotEnabled(t *testing.T) {
	for _, message := range []string{"The subscription is not enabled for using the attach detach data disks API.",
		"The attach detach data disks API is not enabled for the region."} {
		if !strings.Contains(strings.ToLower(message), notEnabled) {
			t.Errorf("%q is not recognized", message)
		}
	}
}
