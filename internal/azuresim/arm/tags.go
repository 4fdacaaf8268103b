package arm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf16"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
)

// The limits of tags. Lengths are in code units of UTF-16.
const (
	mostTags        = 50
	longestTagName  = 512
	longestTagValue = 256
	notInTagNames   = `<>%&\?/`
)

// tags are the tags of a resource. Of names that differ in case only, one is kept: the spelling of
// the first with the value of the last.
type tags map[string]string

// UnmarshalJSON implements json.Unmarshaler.
func (t *tags) UnmarshalJSON(raw []byte) error {
	in := json.NewDecoder(bytes.NewReader(raw))
	if start, err := in.Token(); err != nil || start != json.Delim('{') {
		return json.Unmarshal(raw, (*map[string]string)(t)) // null, or the error
	}
	*t = tags{}
	for in.More() {
		name, err := in.Token()
		if err != nil {
			return err
		}
		var value string
		if err := in.Decode(&value); err != nil {
			return fmt.Errorf("tag %s: %w", name, err)
		}
		t.set(fmt.Sprint(name), value)
	}
	return nil
}

func (t *tags) set(name, value string) {
	for is := range *t {
		if strings.EqualFold(is, name) {
			name = is
			break
		}
	}
	(*t)[name] = value
}

// checkTags refuses tags that no resource can have.
func checkTags(method string, raw []byte) *armerror.Error {
	if method != http.MethodPut && method != http.MethodPatch {
		return nil
	}
	var body struct{ Tags tags }
	if len(raw) == 0 || json.Unmarshal(raw, &body) != nil {
		return nil // the call itself refuses such a body
	}
	if len(body.Tags) > mostTags {
		return armerror.BadRequest("TooManyTags", "The resource has %d tags. The maximum number of tags is '%d'.",
			len(body.Tags), mostTags)
	}
	for name, value := range body.Tags {
		switch {
		case name == "" || units(name) > longestTagName:
			return armerror.BadRequest("InvalidTagNameLength",
				"The length of tag name '%s' is out of range. It must be between '1' and '%d' characters.", name, longestTagName)
		case strings.ContainsAny(name, notInTagNames):
			return armerror.BadRequest("InvalidTagNameCharacters",
				"The tag names '%s' have reserved characters '<,>,%%,&,\\,?,/' or control characters.", name)
		case units(value) > longestTagValue:
			return armerror.BadRequest("InvalidTagValueLength", "Tag value too large. "+
				"Following tag value '%s' exceeded the maximum length. Maximum allowed length for tag value - '%d' characters.",
				value, longestTagValue)
		}
	}
	return nil
}

func units(text string) int { return len(utf16.Encode([]rune(text))) }
