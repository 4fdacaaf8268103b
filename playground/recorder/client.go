package recorder

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"k8s.io/utils/clock"
)

const (
	// connectTimeout bounds an attempt to connect. A node that is frozen or gone answers nothing, so
	// without it an attempt takes as long as the kernel repeats its SYN.
	connectTimeout = 2 * time.Second
	// createTable makes the clients' table. Of several clients that make it at once, one fails and
	// tries again.
	createTable = `CREATE TABLE IF NOT EXISTS commits (client text, n bigint, PRIMARY KEY (client, n))`
)

// ClientOptions are those of a client of PostgreSQL.
type ClientOptions struct {
	// Database is the connection string.
	Database string
	// CollectorURL is the client's address at the Collector, http://address/<client>.
	CollectorURL string
	// Client is its name in the table.
	Client string
	// Committed is the last row that an earlier client of the name was told is committed; 0 for none.
	Committed int64
	// Interval is the time between the starts of two transactions. One that takes longer delays the
	// next.
	Interval time.Duration
	// Timeout is when the client gives a transaction up, and its connection with it. 0 waits for ever,
	// as clients do by default.
	Timeout time.Duration
	Clock   clock.WithTicker
	Log     *slog.Logger
}

// RunClient commits one row after the other until the context ends, which is a success. It reports each
// commit to the Collector with the time of its end, and notes all attempts in the log: see
// ParseOutcomes. After an error it connects again and checks that each row that was committed is there.
// A missing one ends it with an error, which it reports too.
func RunClient(ctx context.Context, o ClientOptions) error {
	c := &client{
		ClientOptions: o,
		outcomes:      outcomeLog{log: o.Log},
		report:        newReporter(o.CollectorURL, o.Client, 1, o.Clock),
		committed:     o.Committed,
	}
	reporting, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { c.report.run(reporting) })
	err := c.run(ctx)
	c.outcomes.note(o.Clock.Now())
	if err != nil {
		c.report.event(Event{
			Kind:     EventFailed,
			Time:     o.Clock.Now(),
			Sequence: c.committed,
			Detail:   err.Error(),
		})
	}
	stop()
	running.Wait()
	return err
}

type client struct {
	ClientOptions
	report   *reporter
	outcomes outcomeLog
	db       *pgx.Conn
	// committed is the last row of which the server has said that it is committed, next the one that
	// is to be inserted.
	committed, next int64
}

// errLost says that a row that was committed is missing.
var errLost = errors.New("committed rows are missing")

func (c *client) run(ctx context.Context) error {
	ticker := c.Clock.NewTicker(c.Interval)
	defer ticker.Stop()
	defer c.disconnect()
	for ctx.Err() == nil {
		began := c.Clock.Now()
		err := c.commit(ctx)
		if errors.Is(err, errLost) {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		c.outcomes.add(c.next, began, c.Clock.Now(), err)
		if err != nil {
			c.disconnect()
		} else {
			c.committed = c.next
			c.next++
			c.report.ack(Mark{Sequence: c.committed, Time: c.Clock.Now()})
		}
		select {
		case <-ticker.C():
		case <-ctx.Done():
		}
	}
	return nil
}

// commit inserts the next row, over a new connection if there is none.
func (c *client) commit(ctx context.Context) error {
	if c.db == nil {
		if err := c.connect(ctx); err != nil {
			return err
		}
	}
	ctx, cancel := c.limited(ctx)
	defer cancel()
	_, err := c.db.Exec(ctx, `INSERT INTO commits VALUES ($1, $2)`, c.Client, c.next)
	return err
}

func (c *client) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.Timeout == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, c.Timeout)
}

// connect connects and compares what is in the table with what was committed. A row whose commit was
// not answered may be there or not.
func (c *client) connect(ctx context.Context) error {
	connecting, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	db, err := pgx.Connect(connecting, c.Database)
	if err != nil {
		return err
	}
	c.db = db
	ctx, cancel = c.limited(ctx)
	defer cancel()
	if _, err := db.Exec(ctx, createTable); err != nil {
		return err
	}
	var rows, last int64
	err = db.QueryRow(ctx, `SELECT count(*), coalesce(max(n), 0) FROM commits WHERE client = $1`, c.Client).Scan(&rows, &last)
	if err != nil {
		return err
	}
	if rows != last || last < c.committed {
		return fmt.Errorf("%w: the table has %d rows of %s, the last is %d, and %d was committed", errLost, rows, c.Client, last,
			c.committed)
	}
	c.next = last + 1
	return nil
}

func (c *client) disconnect() {
	if c.db != nil {
		// The server may not answer any more: nobody waits for its farewell.
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = c.db.Close(ended)
		c.db = nil
	}
}
