package licence

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestTheModulesOfAReleaseHaveAllowedLicences looks at what the released programs are built from on
// each platform.
func TestTheModulesOfAReleaseHaveAllowedLicences(t *testing.T) {
	var all []Module
	for _, c := range []struct {
		dir, program string
		systems      []string
	}{
		{"../..", "./cmd/azuredisk", []string{"linux"}},
		{"../../cli/kubectl-azuredisk", ".", []string{"linux", "darwin", "windows"}},
	} {
		for _, system := range c.systems {
			for _, architecture := range []string{"amd64", "arm64"} {
				modules := listed(t, c.dir, c.program, system, architecture)
				if len(modules) < 50 {
					t.Errorf("%s for %s/%s: got %d modules, want at least 50", c.program, system, architecture, len(modules))
				}
				for _, m := range modules {
					if !slices.Contains(all, m) {
						all = append(all, m)
					}
				}
			}
		}
	}
	if _, err := Notices(all); err != nil {
		t.Error(err)
	}
}

// listed are the modules of the packages of a program.
func listed(t *testing.T, dir, program, system, architecture string) []Module {
	t.Helper()
	list := exec.Command("go", "list", "-deps", "-json=Module", program)
	list.Dir = dir
	list.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+architecture)
	output, err := list.Output()
	must(t, err)
	var modules []Module
	for from := json.NewDecoder(bytes.NewReader(output)); ; {
		var p struct{ Module Module }
		err := from.Decode(&p)
		if errors.Is(err, io.EOF) {
			return modules
		}
		must(t, err)
		if p.Module.Version != "" && p.Module.Version != "v0.0.0" && !slices.Contains(modules, p.Module) {
			modules = append(modules, p.Module)
		}
	}
}

const mit = `Copyright (c) 2020 A. Person

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation
files (the "Software"), to deal in the Software without restriction, including without limitation the rights to use, copy,
modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the Software
is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE,
ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
`

// gpl is the text that a file has above its code.
const gpl = `This program is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License as
published by the Free Software Foundation, either version 3 of the License, or (at your option) any later version.

This program is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY; without even the implied warranty of
MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the GNU General Public License for more details.

You should have received a copy of the GNU General Public License along with this program. If not, see
<https://www.gnu.org/licenses/>.
`

// with is a module with these files.
func with(t *testing.T, files map[string]string) Module {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	return Module{"example.com/module", "v1.2.3", dir}
}

func TestAModuleWithoutAnAllowedLicenceIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"an allowed licence":       {map[string]string{"LICENSE": mit}, ""},
		"not of the program":       {map[string]string{"LICENSE.md": mit, "a/testdata/LICENSE": gpl}, ""},
		"a licence in a folder":    {map[string]string{"LICENSE": mit, "a/COPYING": gpl}, "a/COPYING: got the licence GPL-3.0"},
		"two in one file":          {map[string]string{"LICENSE": mit + "\n" + gpl}, "GPL-3.0"},
		"an unknown one":           {map[string]string{"LICENCE.txt": "You may look at it.\n"}, "of no known kind"},
		"none":                     {map[string]string{"README.md": mit, "license.go": "a"}, "has no file of a licence"},
		"a notice without licence": {map[string]string{"NOTICE": mit}, "has no file of a licence"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Notices([]Module{with(t, c.files)})
			if got := ""; err != nil {
				got = err.Error()
				if c.want == "" || !strings.Contains(got, c.want) {
					t.Errorf("got the error %q, want one with %q", got, c.want)
				}
			} else if c.want != "" {
				t.Errorf("got no error, want one with %q", c.want)
			}
		})
	}
}

func TestNoticesHaveEachTextOnce(t *testing.T) {
	first := with(t, map[string]string{"LICENSE": mit, "NOTICE": "Made by A."})
	second := with(t, map[string]string{"LICENSE": mit})
	second.Path = "example.com/second"
	text, err := Notices([]Module{first, second})
	must(t, err)
	const files = "example.com/module v1.2.3: LICENSE\nexample.com/second v1.2.3: LICENSE\n\nCopyright (c) 2020 A. Person"
	if got := string(text); strings.Count(got, "Permission is hereby") != 1 || !strings.Contains(got, files) ||
		!strings.Contains(got, "module v1.2.3: NOTICE\n\nMade by A.\n") {
		t.Errorf("got %s\nwant the licence once, for both modules, and the notice", got)
	}
}

// TestModulesOfAProgramAreFound builds a program, because the program of a test does not record its
// modules.
func TestModulesOfAProgramAreFound(t *testing.T) {
	file := filepath.Join(t.TempDir(), "program")
	if out, err := exec.Command("go", "build", "-o", file, "./testdata/program").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	program, err := os.ReadFile(file)
	must(t, err)
	modules, err := Modules(program)
	must(t, err)
	text, err := Notices(modules)
	must(t, err)
	for _, want := range []string{"Go go1.", "golang.org/x/sync v", ": LICENSE", ": PATENTS", "Copyright 2009 The Go Authors"} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("got no %q in the notices, want it: %.1000s", want, text)
		}
	}
}
