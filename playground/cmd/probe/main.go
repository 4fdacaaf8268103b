// Command probe is the workload of `playground selftest` and `playground lifecycle`: it
// serves its host name, or holds a pod's volumes, or tries one thing from inside a pod and
// prints what came of it.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

const usage = "usage: probe serve ADDRESS | get URL [HEADER VALUE] | list FOLDER | write DEVICE TEXT | read DEVICE LENGTH | " +
	"reserve DEVICE KEY [VICTIM] | hold | put FILE TEXT | cat FILE | size PATH | show PATH"

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 2 && args[0] == "serve":
		return serve(args[1])
	case len(args) >= 2 && args[0] == "get":
		return get(ctx, args[1], args[2:])
	case len(args) == 2 && args[0] == "list":
		return list(args[1])
	case len(args) == 3 && args[0] == "write":
		return write(args[1], args[2])
	case len(args) == 3 && args[0] == "read":
		return read(args[1], args[2])
	case len(args) == 3 && args[0] == "reserve":
		return reserve(args[1], args[2], "")
	case len(args) == 4 && args[0] == "reserve":
		return reserve(args[1], args[2], args[3])
	case len(args) == 1 && args[0] == "hold":
		return hold(ctx)
	case len(args) == 3 && args[0] == "put":
		return put(args[1], args[2])
	case len(args) == 2 && args[0] == "cat":
		return cat(args[1])
	case len(args) == 2 && args[0] == "size":
		return size(args[1])
	case len(args) == 2 && args[0] == "show":
		return show(args[1])
	}
	return errors.New(usage)
}

func serve(address string) error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	return http.ListenAndServe(address, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, name)
	}))
}

// get tries for a while: Services and names need a moment to be known everywhere.
func get(ctx context.Context, url string, header []string) error {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		// The question is whether the address can be reached, so the certificate is not checked.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	var last error
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if len(header) == 2 {
			request.Header.Set(header[0], header[1])
		}
		response, err := client.Do(request)
		if err != nil {
			last = err
			continue
		}
		defer response.Body.Close()
		body, err := io.ReadAll(io.LimitReader(response.Body, 4096))
		fmt.Printf("%d %s\n", response.StatusCode, body)
		return err
	}
	return last
}

func list(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		fmt.Println(e.Name())
	}
	return err
}

func write(device, text string) error {
	file, err := os.OpenFile(device, os.O_WRONLY|os.O_SYNC, 0)
	if err != nil {
		return err
	}
	if _, err := file.WriteString(text); err != nil {
		return err
	}
	return file.Close()
}

func read(device, length string) error {
	var n int
	if _, err := fmt.Sscan(length, &n); err != nil {
		return err
	}
	file, err := os.Open(device)
	if err != nil {
		return err
	}
	defer file.Close()
	data := make([]byte, n)
	if _, err := io.ReadFull(file, data); err != nil {
		return err
	}
	fmt.Printf("%s\n", data)
	return nil
}
