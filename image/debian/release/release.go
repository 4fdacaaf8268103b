package release

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
)

// keyFiles are the public keys of Debian 12, as the package debian-archive-keyring has them.
// https://ftp-master.debian.org/keys.html lists their fingerprints.
//
//go:embed keys/*.asc
var keyFiles embed.FS

// Keys are the keys with which Debian signs the releases that packages are taken from.
func Keys() (openpgp.EntityList, error) {
	names, err := fs.Glob(keyFiles, "keys/*.asc")
	if err != nil {
		return nil, err
	}
	var keys openpgp.EntityList
	for _, name := range names {
		data, err := keyFiles.ReadFile(name)
		if err != nil {
			return nil, err
		}
		list, err := openpgp.ReadArmoredKeyRing(bytes.NewReader(data))
		if err != nil {
			return nil, fmt.Errorf("read the key %s: %w", name, err)
		}
		keys = append(keys, list...)
	}
	return keys, nil
}

// signedRelease is what a signed InRelease file says.
type signedRelease struct {
	codename string
	// files are the files of the release by path.
	files map[string]sum
}

type sum struct {
	size   int64
	sha256 string
}

// verifyRelease checks the signature of an InRelease file and returns only what is signed.
func verifyRelease(signed []byte, keys openpgp.KeyRing) (signedRelease, error) {
	block, _ := clearsign.Decode(signed)
	if block == nil {
		return signedRelease{}, errors.New("the InRelease file has no signed text")
	}
	if _, err := block.VerifySignature(keys, nil); err != nil {
		return signedRelease{}, fmt.Errorf("the InRelease file is not signed by a known key of Debian: %w", err)
	}
	stanzas, err := parseControl(bytes.NewReader(block.Plaintext))
	if err != nil {
		return signedRelease{}, err
	}
	if len(stanzas) != 1 {
		return signedRelease{}, fmt.Errorf("the InRelease file has %d paragraphs, want 1", len(stanzas))
	}
	out := signedRelease{codename: stanzas[0]["Codename"], files: map[string]sum{}}
	for _, line := range strings.Split(stanzas[0]["SHA256"], "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if len(fields) != 3 {
			return signedRelease{}, fmt.Errorf("the InRelease file has the line %q under SHA256, want a hash, a size and a path",
				line)
		}
		size, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return signedRelease{}, fmt.Errorf("the InRelease file has the line %q under SHA256: %w", line, err)
		}
		out.files[fields[2]] = sum{size: size, sha256: fields[0]}
	}
	if len(out.files) == 0 {
		return signedRelease{}, errors.New("the InRelease file lists no file under SHA256")
	}
	return out, nil
}
