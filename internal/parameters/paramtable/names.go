package paramtable

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const maxNameLength = 80

// ResourceName returns a name that Azure accepts for a disk or snapshot: 1 to 80 letters, digits,
// "_", "-" and ".", with a letter or digit first and no "-" or "." last. Another name is corrected
// and gets a hash of the original appended, so that different names remain different. If the
// correction leaves no character, fallback replaces the name.
func ResourceName(name, fallback string) string {
	if validName(name) {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	suffix := "-" + hex.EncodeToString(sum[:])[:12]
	corrected := strings.Map(func(r rune) rune {
		if isAlphanumeric(r) || strings.ContainsRune("_-.", r) {
			return r
		}
		return '-'
	}, name)
	corrected = strings.TrimLeft(corrected, "_-.")
	if len(corrected) > maxNameLength-len(suffix) {
		corrected = corrected[:maxNameLength-len(suffix)]
	}
	if corrected == "" {
		corrected = fallback
	}
	return corrected + suffix
}

func validName(name string) bool {
	if name == "" || len(name) > maxNameLength {
		return false
	}
	for i, r := range name {
		switch {
		case isAlphanumeric(r):
		case r == '_' && i > 0:
		case (r == '-' || r == '.') && i > 0 && i < len(name)-1:
		default:
			return false
		}
	}
	return true
}

func isAlphanumeric(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}
