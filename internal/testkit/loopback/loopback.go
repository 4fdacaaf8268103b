// Package loopback gives tests addresses for servers that are stopped and started again.
package loopback

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"testing"
)

const (
	lowest  = 10000
	highest = 32767
)

// Address returns an address on 127.0.0.1 at which nothing listens. Its port is below those that
// Linux gives to outgoing connections and to processes that request any port
// (net.ipv4.ip_local_port_range), if there are such ports: no process gets it by chance while the
// test's server is down.
func Address(t testing.TB) string {
	t.Helper()
	top := highest
	if text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		var first int
		if _, err := fmt.Sscan(string(text), &first); err == nil && first > lowest+1000 {
			top = first - 1
		}
	}
	var last error
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", lowest+rand.IntN(top-lowest+1))
		listener, err := net.Listen("tcp", address)
		if err == nil {
			_ = listener.Close()
			return address
		}
		last = err
	}
	t.Fatalf("no free port on loopback: %v", last)
	return ""
}
