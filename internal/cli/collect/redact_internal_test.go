package collect

import (
	"slices"
	"strings"
	"testing"
)

// Each text has the secret in one piece or in several, and a word that has to stay.
func TestSecretsAreRemovedWhateverCharactersTheyHave(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"a comma at the beginning":              `kept {"aadClientSecret":"a,LEAKED"} kept`,
		"a semicolon at the beginning":          `kept {"aadClientSecret":"a;LEAKED"} kept`,
		"a comma in a flag":                     `kept --client-secret=a,LEAKED kept`,
		"a flag with a short value":             `kept --password=LEAK kept`,
		"a brace":                               `kept {"password":"a}LEAKED"} kept`,
		"a space":                               `kept {"password":"a LEAKED"} kept`,
		"a quote":                               `kept {"password":"a\"LEAKED"} kept`,
		"a comma, in a text in quotes":          `kept {\"aadClientSecret\":\"a,LEAKED\"} kept`,
		"a space, in a text in quotes":          `kept {\"aadClientSecret\":\"a LEAKED\"} kept`,
		"single quotes":                         `kept password: 'a, LEAKED' kept`,
		"a connection string":                   `kept AccountName=x;AccountKey=a,LEAKED;EndpointSuffix=e kept`,
		"two arguments, in JSON":                `kept ["--password","LEAKED","kept"]`,
		"two arguments, on lines of JSON":       "kept [\n  \"--client-secret\",\n  \"LEAKED\",\n  \"kept\"\n]",
		"two arguments, in a text in quotes":    `kept [\"--password\",\"LEAKED\",\"kept\"]`,
		"two arguments, in YAML":                "kept\n- --password\n- LEAKED, LEAKED\n- kept\n",
		"two arguments, in a line":              `kept curl --proxy-password LEAKED kept`,
		"a proxy's password with a slash":       `kept http://user:a/LEAKED@proxy.test:3128/kept`,
		"a proxy's password with an at sign":    `kept http://user:a@LEAKED@proxy.test:3128/kept`,
		"a proxy's password with both":          `kept http://user:/@LEAKED/@proxy.test:3128 kept`,
		"a proxy's password without a user":     `kept http://:LEAKED@proxy.test:3128 kept`,
		"a proxy's password, in a text of JSON": `kept {"env":"http://user:a/LEAKED@proxy.test:3128"} kept`,
	} {
		files := []File{{Content: []byte(text)}}
		redact(files, true)
		got := string(files[0].Content)
		if strings.Contains(got, "LEAK") || !strings.Contains(got, redacted) {
			t.Errorf("%s: got %q, want the secret replaced", name, got)
		}
		if strings.Count(got, "kept") < strings.Count(text, "kept") {
			t.Errorf("%s: got %q, want each word around it kept", name, got)
		}
	}
}

func TestArgumentsOfTwoElementsAreRemoved(t *testing.T) {
	t.Parallel()
	args := []string{"--user", "kept", "--password", "LEAKED", "-token", "LEAKED", "--token-file", "kept"}
	redactArguments(args)
	want := []string{"--user", "kept", "--password", redacted, "-token", redacted, "--token-file", "kept"}
	if !slices.Equal(args, want) {
		t.Errorf("got %q, want %q", args, want)
	}
}

func TestABundleHasNoControlCharacters(t *testing.T) {
	t.Parallel()
	files := []File{{Content: []byte("\x1b[31ma\rb\n\u009b\u202e")}}
	redact(files, true)
	if got, want := string(files[0].Content), `\u001b[31ma\u000db`+"\n"+`\u009b\u202e`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
