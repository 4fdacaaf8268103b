package unixsocket_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/azuredisk-csi/azuredisk/internal/unixsocket"
)

func TestASocketInUseAndAFileAreLeftAlone(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "csi.sock")
	listener, err := unixsocket.Listen(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if _, err := unixsocket.Listen(t.Context(), socket); err == nil {
		t.Error("a socket that a process listens at was taken")
	}
	file := filepath.Join(t.TempDir(), "csi.sock")
	if err := os.WriteFile(file, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := unixsocket.Listen(t.Context(), file); err == nil {
		t.Error("a plain file was replaced")
	}
	if _, err := unixsocket.Path("tcp://0.0.0.0:10000"); err == nil {
		t.Error("a TCP endpoint was taken")
	}
}
