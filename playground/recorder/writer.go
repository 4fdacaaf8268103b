package recorder

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Options of a writer.
type Options struct {
	// Dir is the data directory: the mounted volume.
	Dir string
	// CollectorURL is the workload's address at the Collector, http://address/<workload>.
	CollectorURL string
	// Writer identifies this writer: the pod's UID.
	Writer string
	// Interval between the starts of two writes. A write that takes longer delays the next.
	Interval time.Duration
	// KeepTrying makes a writer whose write fails try again, with the same number, until
	// the context ends: it shows that its disk stays cut.
	KeepTrying bool
	// Unsynced makes a writer acknowledge records that it has written and not synced. Those of a
	// writer that has ended in good order must not be lost.
	Unsynced bool
	Clock    clock.WithTicker
	Log      *slog.Logger
}

// Write appends records until the context ends, which is a success, or a write
// fails, which is reported to the Collector and, unless it is to keep trying, returned.
// What becomes of the attempts is noted in the log; see ParseOutcomes.
func Write(ctx context.Context, o Options) error {
	journal, content, err := openJournal(o.Dir)
	if err != nil {
		return reportFailure(ctx, o, fmt.Errorf("open the records: %w", err))
	}
	journal.unsynced = o.Unsynced
	w := &writer{
		Options:  o,
		journal:  journal,
		outcomes: outcomeLog{log: o.Log},
	}
	entries := Parse(content)
	w.sequence, w.start = Last(entries)
	w.start++
	stop := w.connect(ctx)
	defer stop()
	w.resumed(entries)
	err = w.run(ctx)
	w.outcomes.note(o.Clock.Now())
	if err != nil {
		w.failed(err)
		return err
	}
	w.report.event(Event{
		Kind:     EventStopped,
		Time:     o.Clock.Now(),
		Sequence: w.sequence,
	})
	o.Log.Info("stopped", "last", w.sequence)
	return journal.close()
}

// reportFailure reports a failure that came before the writer knew its own number.
func reportFailure(ctx context.Context, o Options, err error) error {
	w := &writer{Options: o}
	stop := w.connect(ctx)
	defer stop()
	w.report.event(Event{
		Kind:   EventFailed,
		Time:   o.Clock.Now(),
		Detail: err.Error(),
	})
	return err
}

type writer struct {
	Options
	journal  *journal
	report   *reporter
	outcomes outcomeLog
	sequence int64
	start    int64
	audited  int64
	// hasFailed: a write has failed.
	hasFailed bool
}

// connect starts the reporting; the function that it returns ends it, after a last
// attempt to deliver.
func (w *writer) connect(ctx context.Context) func() {
	w.report = newReporter(w.CollectorURL, w.Writer, w.start, w.Clock)
	reportCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { w.report.run(reportCtx) })
	return func() {
		cancel()
		running.Wait()
	}
}

func (w *writer) resumed(entries []Entry) {
	damaged := 0
	for _, e := range entries {
		if e.Damaged {
			damaged++
		}
	}
	w.Log.Info("resumed", "after", w.sequence, "start", w.start, "records", len(entries)-damaged, "damaged", damaged)
	w.report.event(Event{
		Kind:     EventResumed,
		Time:     w.Clock.Now(),
		Sequence: w.sequence,
		Detail:   fmt.Sprintf("found %d records and %d damaged lines", len(entries)-damaged, damaged),
	})
}

func (w *writer) run(ctx context.Context) error {
	ticker := w.Clock.NewTicker(w.Interval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		now := w.Clock.Now()
		record := Record{
			Sequence: w.sequence + 1,
			Start:    w.start,
			Writer:   w.Writer,
			Time:     now,
		}
		err := w.journal.append(record)
		w.outcomes.add(record.Sequence, now, w.Clock.Now(), err)
		switch {
		case err == nil:
			w.sequence = record.Sequence
			w.report.ack(Mark{Sequence: record.Sequence, Time: now})
			w.auditIfWanted(ctx)
		case !w.KeepTrying:
			return fmt.Errorf("write record %d: %w", record.Sequence, err)
		default:
			w.failed(err)
		}
		select {
		case <-ticker.C():
		case <-ctx.Done():
		}
	}
	return nil
}

// failed tells the Collector of the first write that failed.
func (w *writer) failed(err error) {
	if !w.hasFailed {
		w.hasFailed = true
		w.report.event(Event{
			Kind:     EventFailed,
			Time:     w.Clock.Now(),
			Sequence: w.sequence,
			Detail:   err.Error(),
		})
	}
}

// auditIfWanted runs between two records. A failure is logged and the audit tried
// again after the next record.
func (w *writer) auditIfWanted(ctx context.Context) {
	wanted := w.report.wantedAudit()
	if wanted <= w.audited {
		return
	}
	content, direct, err := ReadDisk(w.Dir)
	if err == nil {
		err = w.report.content(ctx, wanted, direct, content)
	}
	if err != nil {
		w.Log.Error("audit failed", "error", err)
		return
	}
	w.audited = wanted
}
