package arm

import (
	"encoding/base64"
	"net/http"

	"github.com/azuredisk-csi/azuredisk/internal/azuresim/armerror"
	"github.com/azuredisk-csi/azuredisk/internal/azuresim/compute"
)

const skipToken = "$skiptoken"

// after reads where a list continues.
func (c *call) after() (string, error) {
	raw, err := base64.RawURLEncoding.DecodeString(c.URL.Query().Get(skipToken))
	if err != nil {
		return "", armerror.InvalidParameter(skipToken, "The request URL is not valid.")
	}
	return string(raw), nil
}

// listReply renders a page with the link to the next.
func listReply[T any](c *call, p compute.Page[T], render func(*T) any) reply {
	items := make([]any, 0, len(p.Items))
	for _, item := range p.Items {
		items = append(items, render(item))
	}
	body := map[string]any{"value": items}
	if p.Next != "" {
		q := c.URL.Query()
		q.Set(skipToken, base64.RawURLEncoding.EncodeToString([]byte(p.Next)))
		body["nextLink"] = baseURL(c.Request) + c.URL.EscapedPath() + "?" + q.Encode()
	}
	return reply{status: http.StatusOK, body: body}
}
