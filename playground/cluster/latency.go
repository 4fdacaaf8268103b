package cluster

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/azuredisk-csi/azuredisk/playground/state"
)

// SetLatency switches azuresim's latencies: realistic or fast. What is under way keeps
// the time that it has begun with. It holds until the next switch, or until azuresim's
// front end is started again.
func (c *Cluster) SetLatency(ctx context.Context, profile string) error {
	admin, err := c.AzureAdmin(ctx)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, admin+"/admin/latency?name="+url.QueryEscape(profile), nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("switch azuresim's latencies: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode/100 != 2 {
		text, _ := io.ReadAll(response.Body)
		return fmt.Errorf("switch azuresim's latencies: %s", strings.TrimSpace(string(text)))
	}
	// Scenarios that measure look here.
	c.Options.Latency = profile
	return state.WriteJSON(c.Dir.Options(), c.Options)
}
