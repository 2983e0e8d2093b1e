package reports

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/danm-chaos/danm-chaos/harness"
	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/harness/history"
	"github.com/danm-chaos/danm-chaos/reports/timeline"
)

// Run is a result with what its run directory holds besides.
type Run struct {
	harness.Result
	Records  []history.Record // as far as they can be read
	Problems []string         // what the directory lacks or what in it cannot be read
	Live     bool             // the run goes on, and nothing is judged yet
	Rebuilt  bool             // from the history alone, so run.json is not ours to write

	builder *timeline.Builder
}

// Open reads a run directory, whole or not: what is missing or cannot be read
// is a problem of the run and no error. There is an error only for a directory
// that holds neither a result nor a history.
func Open(dir string) (Run, error) {
	var r Run
	result, resultErr := Read(dir)
	r.readHistory(dir)
	if resultErr == nil {
		r.Result = mergeMeasured(result, r.Measured)
		return r, nil
	}
	if len(r.Records) == 0 && (r.builder == nil || errors.Is(resultErr, fs.ErrNotExist)) {
		return r, resultErr
	}
	r.Problems = append([]string{resultErr.Error() + ", so only the history is shown"}, r.Problems...)
	r.Result, r.Rebuilt = rebuilt(filepath.Base(dir), r.Records, r.Measured), true
	return r, nil
}

// Load returns a result that was just judged, with the history beside it.
func Load(dir string, result harness.Result) Run {
	r := Run{Result: result}
	r.readHistory(dir)
	return r
}

// Follow makes a run of what is known while it goes on. The builder has seen
// its history so far.
func Follow(result harness.Result, b *timeline.Builder) Run {
	r := Run{Result: result, Live: true, builder: b}
	r.Measured = measured(b.Build())
	return r
}

// mergeMeasured prefers what the history says now. A run of an older schema
// gets what it did not have.
func mergeMeasured(r harness.Result, m *harness.Measured) harness.Result {
	if m != nil {
		r.Measured = m
	}
	return r
}

// readHistory reads the history beside the result.
func (r *Run) readHistory(dir string) {
	records, err := history.Read(filepath.Join(dir, HistoryFile))
	if err != nil {
		r.Problems = append(r.Problems, err.Error())
	}
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil { // what was read is a history with a hole
		gap := history.Record{N: uint64(len(records)) + 1, Gap: &history.Gap{Source: "history", Reason: err.Error()}}
		if len(records) > 0 {
			gap.Time = records[len(records)-1].Time
		}
		records = append(records, gap)
	}
	if n := len(records); err == nil && n > 0 && records[n-1].Gap != nil && records[n-1].Gap.Source == "history" {
		r.Problems = append(r.Problems, "reading history: "+records[n-1].Gap.Reason)
	}
	r.Records = records
	r.builder = timeline.NewBuilder()
	r.builder.Add(records...)
	r.Measured = measured(r.builder.Build())
}

// measured is what the result keeps of a timeline.
func measured(t *timeline.Timeline) *harness.Measured {
	m := &harness.Measured{
		Releases: releaseTimes(t), RequestsPerIteration: t.RequestsPerIteration, Requests: t.Requests, Skipped: t.Skipped,
	}
	if m.RequestsPerIteration == nil {
		m.RequestsPerIteration = []int{}
	}
	if m.Skipped == nil {
		m.Skipped = []string{}
	}
	return m
}

// Read returns the result that Write stored in the run directory, of this
// schema version or an older one.
func Read(dir string) (harness.Result, error) { return ReadResult(filepath.Join(dir, RunFile)) }

// ReadResult returns the result stored in a file.
func ReadResult(path string) (harness.Result, error) {
	var r harness.Result
	data, err := os.ReadFile(path)
	if err != nil {
		return r, fmt.Errorf("reading the result: %w", err)
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("reading the result: %s: %w", path, err)
	}
	if r.SchemaVersion < 1 || r.SchemaVersion > harness.ResultSchemaVersion {
		return r, fmt.Errorf("reading the result: %s has schemaVersion %d, this program reads 1 to %d",
			path, r.SchemaVersion, harness.ResultSchemaVersion)
	}
	return r, nil
}

// rebuilt is the result of a run that did not get as far as writing one.
func rebuilt(runID string, records []history.Record, m *harness.Measured) harness.Result {
	r := harness.Result{
		SchemaVersion: harness.ResultSchemaVersion, RunID: runID, Cleaner: "unknown", Commit: "unknown", Verdict: check.Unknown, Measured: m,
		FaultsPlanned: map[string]int{}, FaultsFired: map[string]int{},
	}
	lanes := map[string]*history.Lane{}
	for i := range records {
		switch record := &records[i]; {
		case record.Run != nil:
			r.Started, r.RunID, r.Scenario, r.Cluster = record.Time, record.Run.RunID, record.Run.Scenario, record.Run.Cluster
			r.Seed, r.Group = record.Run.Seed, record.Run.Group
		case record.Lane != nil:
			lanes[record.Lane.Name] = record.Lane
		case record.Op != nil && record.Op.Fault && record.Op.Type == history.OK:
			r.FaultsFired[record.Op.F]++
		case record.Snapshot != nil:
			r.Iterations = append(r.Iterations, rebuiltIteration(record.Snapshot, lanes[record.Snapshot.Lane]))
		}
	}
	if n := len(records); n > 0 && !r.Started.IsZero() {
		r.DurationSeconds = records[n-1].Time.Sub(r.Started).Seconds()
	}
	return r
}

// rebuiltIteration is what a snapshot tells. Nobody stored its verdict.
func rebuiltIteration(s *history.Snapshot, lane *history.Lane) harness.Iteration {
	it := harness.Iteration{
		Number: s.Iteration, Lane: s.Lane, Faults: []string{}, Pods: len(s.Pods), Endpoints: len(s.Endpoints), Bits: len(s.Bits),
		Verdict: check.Unknown, Note: s.Pending, Settled: s.Took,
	}
	for _, p := range s.Pods {
		it.Expected += p.Interfaces
	}
	if lane != nil {
		it.Network = lane.NetworkKind + " " + families(lane)
	}
	return it
}

func families(l *history.Lane) string {
	switch {
	case l.IPv4 && l.IPv6:
		return "v4+v6"
	case l.IPv6:
		return "v6"
	default:
		return "v4"
	}
}

func releaseTimes(t *timeline.Timeline) []time.Duration {
	out := []time.Duration{}
	for _, r := range t.Releases {
		if r.OwnerGone {
			out = append(out, r.After)
		}
	}
	return out
}
