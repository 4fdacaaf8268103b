// Command recorder is the workload of the playground's scenarios: see package
// recorder. It is linked statically and runs as the only process of its container.
//
//	recorder write --dir /data --collector http://10.230.0.4:8080/my-workload
//	recorder verify --dir /data [--summary]
//	recorder client --database postgres://postgres@database/postgres --collector http://10.230.0.4:8080/my-client --name my-client
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/utils/clock"

	"github.com/azuredisk-csi/azuredisk/playground/recorder"
)

const usage = `usage:
  recorder write  --dir DIR --collector URL [--writer ID] [--interval 12ms] [--keep-trying] [--unsynced]
  recorder verify --dir DIR [--summary]
  recorder client --database URL --collector URL --name NAME [--committed 0] [--interval 20ms] [--timeout 0]
`

func main() {
	if len(os.Args) < 2 {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	var err error
	switch os.Args[1] {
	case "write":
		err = write(os.Args[2:])
	case "verify":
		err = verify(os.Args[2:])
	case "client":
		err = client(os.Args[2:])
	default:
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "recorder:", err)
		os.Exit(1)
	}
}

func write(args []string) error {
	flags := flag.NewFlagSet("write", flag.ExitOnError)
	dir := flags.String("dir", "/data", "directory that holds the records")
	collector := flags.String("collector", "",
		"address of the workload at the collector, as in http://10.230.0.4:8080/my-workload")
	id := flags.String("writer", os.Getenv("POD_UID"), "identity of this writer; default is $POD_UID")
	interval := flags.Duration("interval", 12*time.Millisecond, "time from one write to the next")
	keepTrying := flags.Bool("keep-trying", false, "continue after a write has failed")
	unsynced := flags.Bool("unsynced", false, "acknowledge records that are written and not synced")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *collector == "" || *id == "" {
		return errors.New("--collector and --writer (or $POD_UID) are needed")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return recorder.Write(ctx, recorder.Options{
		Dir:          *dir,
		CollectorURL: *collector,
		Writer:       *id,
		Interval:     *interval,
		KeepTrying:   *keepTrying,
		Unsynced:     *unsynced,
		Clock:        clock.RealClock{},
		Log:          slog.New(slog.NewJSONHandler(os.Stdout, nil)),
	})
}

func client(args []string) error {
	flags := flag.NewFlagSet("client", flag.ExitOnError)
	database := flags.String("database", "", "connection string of PostgreSQL")
	collector := flags.String("collector", "", "address of the client at the collector")
	name := flags.String("name", "", "name of the client in the table")
	interval := flags.Duration("interval", 20*time.Millisecond, "time from one transaction to the next")
	committed := flags.Int64("committed", 0, "the last row that an earlier client of the name has committed")
	timeout := flags.Duration("timeout", 0, "when a transaction is given up; 0 waits for ever")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *database == "" || *collector == "" || *name == "" {
		return errors.New("--database, --collector and --name are needed")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return recorder.RunClient(ctx, recorder.ClientOptions{
		Database:     *database,
		CollectorURL: *collector,
		Client:       *name,
		Committed:    *committed,
		Interval:     *interval,
		Timeout:      *timeout,
		Clock:        clock.RealClock{},
		Log:          slog.New(slog.NewJSONHandler(os.Stdout, nil)),
	})
}

func verify(args []string) error {
	flags := flag.NewFlagSet("verify", flag.ExitOnError)
	dir := flags.String("dir", "/data", "directory that holds the records")
	summary := flags.Bool("summary", false, "print only the counts")
	if err := flags.Parse(args); err != nil {
		return err
	}
	content, direct, err := recorder.ReadDisk(*dir)
	if err != nil {
		return err
	}
	entries := recorder.Parse(content)
	result := struct {
		Records    int              `json:"records"`
		Damaged    int              `json:"damaged"`
		Last       int64            `json:"last"`
		Starts     int64            `json:"starts"`
		PastCache  bool             `json:"read_around_cache"`
		AllEntries []recorder.Entry `json:"entries,omitempty"`
	}{PastCache: direct}
	for _, e := range entries {
		if e.Damaged {
			result.Damaged++
		} else {
			result.Records++
		}
	}
	result.Last, result.Starts = recorder.Last(entries)
	if !*summary {
		result.AllEntries = entries
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", "  ")
	return encoder.Encode(result)
}
