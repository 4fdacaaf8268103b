package collect

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/azuredisk-csi/azuredisk/internal/printable"
)

const redacted = "REDACTED"

// secretWord ends the names of values that are secret.
const secretWord = `(?:secret|password|passwd|accountkey|account_key|account-key|accesskey|access-key|apikey|api_key|api-key|token)`

// secrets are what may not leave the cluster, wherever a text has it: in logs, in messages of Azure, in
// arguments and annotations.
var secrets = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*(-----END [A-Z ]*PRIVATE KEY-----)?`), redacted},
	{regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(\.[A-Za-z0-9_-]*)?`), redacted}, // tokens
	{regexp.MustCompile(`(?i)(\bauthorization["'\\]*[ \t]*[:=][ \t]*["'\\]*[a-z]+\s+)[^\s"'\\]+`), "${1}" + redacted},
	{regexp.MustCompile(`(?i)(\bbearer\s+)[A-Za-z0-9+/=._~-]{20,}`), "${1}" + redacted},
	// A user and a password, as in the URL of a proxy. The password may have any character that ends no
	// URL: it reaches to the last @.
	{regexp.MustCompile(`(://)[^/\s:@"']*:[^\s"'\\]*@`), "${1}" + redacted + "@"},
	// Signatures in URLs: of shared access, and of Azure's operations, which are in the tokens to resume
	// them.
	{regexp.MustCompile(`(?i)((?:[?&]|\\u0026|%26)` +
		`(?:sig|signature|s|c|h|t|p|code|password|[a-z_]*token|[a-z_]*secret)=)[^&\s"'\\]+`), "${1}" + redacted},
	// Values: in quotes, in quotes of a text in quotes, and without quotes. A comma or a semicolon does not
	// end one: the rest of a connection string is replaced as well.
	{regexp.MustCompile(`(?i)(` + secretWord + `["']?\s*[:=][ \t]*)"(?:[^"\\\n]|\\.)+"`), `${1}"` + redacted + `"`},
	{regexp.MustCompile(`(?i)(` + secretWord + `["']?\s*[:=][ \t]*)'(?:[^'\n]|'')+'`), `${1}'` + redacted + `'`},
	{regexp.MustCompile(`(?i)(` + secretWord + `\\+"\s*[:=][ \t]*\\+")(?:[^"\\\n]|\\\\\\.|\\\\[^\\])+`), "${1}" + redacted},
	{regexp.MustCompile(`(?i)(--?[a-z0-9_-]*` + secretWord + `=)[^\s"'\\]+`), "${1}" + redacted},
	{regexp.MustCompile(`(?i)(` + secretWord + `["'\\]*[ \t]*[:=][ \t]*["'\\]*)[^\s"'\\]{6,}`), "${1}" + redacted},
	// Arguments of two elements: in JSON, in YAML, and in a command line.
	{regexp.MustCompile(`(?i)("--?[a-z0-9_-]*` + secretWord + `"\s*,\s*")(?:[^"\\\n]|\\.)+`), "${1}" + redacted},
	{regexp.MustCompile(`(?i)(\\"--?[a-z0-9_-]*` + secretWord + `\\"\s*,\s*\\")[^"\\]+`), "${1}" + redacted},
	{regexp.MustCompile(`(?im)(^\s*-\s+["']?--?[a-z0-9_-]*` + secretWord + `["']?[ \t]*\r?\n\s*-[ \t]+)\S.*$`),
		"${1}" + redacted},
	{regexp.MustCompile(`(?i)((?:^|\s)--[a-z0-9_-]*` + secretWord + `[ \t]+)[^\s"'\\-][^\s"'\\]*`), "${1}" + redacted},
}

const guid = `[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`

var anyGUID = regexp.MustCompile(`(?i)` + guid)

// owned are the IDs that say whose the cluster is.
var owned = regexp.MustCompile(
	`(?i)(subscription|tenant)s?(?:_?id)?(?:["'\\]*[ \t]*[:=/][ \t]*["'\\]*|%2f)(` + guid + `)`)

// redact removes the secrets from files, and escapes what cannot be printed. Unless they are kept, it replaces each ID
// of a subscription and of a tenant by another name, the same in all files.
func redact(files []File, keepSubscriptions bool) {
	names := map[string]string{}
	for i := range files {
		files[i].Content = withoutSecrets(files[i].Content)
		if keepSubscriptions {
			continue
		}
		for _, found := range owned.FindAllSubmatch(files[i].Content, -1) {
			id := strings.ToLower(string(found[2]))
			if _, known := names[id]; !known {
				names[id] = fmt.Sprintf("%s-%d", bytes.ToLower(found[1]), len(names)+1)
			}
		}
	}
	if len(names) == 0 {
		return
	}
	for i := range files {
		files[i].Content = anyGUID.ReplaceAllFunc(files[i].Content, func(id []byte) []byte {
			if name, is := names[strings.ToLower(string(id))]; is {
				return []byte(name)
			}
			return id
		})
	}
}

func withoutSecrets(content []byte) []byte {
	for _, s := range secrets {
		content = s.pattern.ReplaceAll(content, []byte(s.with))
	}
	return []byte(printable.Text(string(content)))
}

var secretName = regexp.MustCompile(`(?i)secret|password|passwd|token|key|credential|connection`)

var secretFlag = regexp.MustCompile(`(?i)^--?[a-z0-9_-]*` + secretWord + `$`)

// redactArguments removes the values that follow a flag whose name says that they are secret.
func redactArguments(args []string) {
	flag := ""
	for i, arg := range args {
		if secretFlag.MatchString(flag) {
			args[i] = redacted
		}
		flag = arg
	}
}

// redactPodSpec removes the values of environment variables and of arguments whose names say that they
// are secret.
func redactPodSpec(s *corev1.PodSpec) {
	for _, containers := range [][]corev1.Container{s.InitContainers, s.Containers} {
		for i := range containers {
			redactArguments(containers[i].Command)
			redactArguments(containers[i].Args)
			for j := range containers[i].Env {
				if e := &containers[i].Env[j]; e.Value != "" && secretName.MatchString(e.Name) {
					e.Value = redacted
				}
			}
		}
	}
}
