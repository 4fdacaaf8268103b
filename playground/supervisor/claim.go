package supervisor

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"github.com/azuredisk-csi/azuredisk/playground/state"
)

// claimMachine makes this playground the only one of the machine, until it ends: two
// would use the same control groups and settings of the kernel. The claim is an
// abstract socket, which needs no file and cannot be left behind. Who connects to it
// is told the state folder.
func claimMachine(dir state.Dir) (net.Listener, error) {
	listener, err := net.Listen("unix", state.ClaimAddress)
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, errors.New("another playground is up on this machine")
	}
	if err != nil {
		return nil, fmt.Errorf("claim the machine: %w", err)
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			fmt.Fprintln(conn, dir)
			_ = conn.Close()
		}
	}()
	return listener, nil
}
