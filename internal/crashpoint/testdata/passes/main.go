// Command passes serves the handlers of crashpoint, and passes a point for each line that it reads.
package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"

	"github.com/azuredisk-csi/azuredisk/internal/crashpoint"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	for path, handler := range crashpoint.Handlers() {
		mux.Handle(path, handler)
	}
	go func() { panic(http.Serve(listener, mux)) }()
	fmt.Println("http://" + listener.Addr().String())
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		crashpoint.At("a-point-along-the-way")
		fmt.Println("alive")
	}
}
