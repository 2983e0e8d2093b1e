package harness

import (
	"time"

	"github.com/danm-chaos/danm-chaos/harness/check"
)

// ResultSchemaVersion is the version of run.json. Version 1 had no Measured.
const ResultSchemaVersion = 2

// Result is what run.json holds: one run, judged.
type Result struct {
	SchemaVersion   int                     `json:"schemaVersion"`
	RunID           string                  `json:"runId"`
	Scenario        string                  `json:"scenario"`
	Cluster         string                  `json:"cluster"`
	Cleaner         string                  `json:"cleaner"` // as given on the command line
	Group           string                  `json:"danmApi"`
	CNI             string                  `json:"cni"`
	Seed            uint64                  `json:"seed"`
	Commit          string                  `json:"commit"`
	Versions        map[string]string       `json:"versions"`
	Started         time.Time               `json:"started"`
	DurationSeconds float64                 `json:"durationSeconds"`
	Iterations      []Iteration             `json:"iterations"`
	Planned         int                     `json:"iterationsPlanned"`
	Interrupted     bool                    `json:"interrupted,omitempty"`
	Verdict         check.Verdict           `json:"verdict"`
	Violations      []check.Violation       `json:"violations"`
	Findings        []check.Violation       `json:"findings"`
	Unknowns        []string                `json:"unknowns"`
	Unjudged        []string                `json:"unjudged,omitempty"` // what this kind of cluster cannot show
	Skipped         []string                `json:"skipped,omitempty"`  // planned faults that the cluster cannot do, and why
	Checked         map[check.Invariant]int `json:"checked"`
	FaultsPlanned   map[string]int          `json:"faultsPlanned"`
	FaultsFired     map[string]int          `json:"faultsFired"`
	PeakBytes       int64                   `json:"peakResidentBytes"` // all processes together
	CleanerLogTail  []string                `json:"cleanerLogTail,omitempty"`
	Digest          string                  `json:"digest,omitempty"` // of all histories of a search; equal for equal seeds
	Reproduce       string                  `json:"reproduce"`        // command line
	Measured        *Measured               `json:"measured,omitempty"`
}

// Measured is what the history of a run tells about time and cost. Whoever
// renders the run fills it in; it judges nothing.
type Measured struct {
	Releases             []time.Duration `json:"releasesNs"`           // owner gone to address free, of each release
	RequestsPerIteration []int           `json:"requestsPerIteration"` // mutating requests of the cleaner
	Requests             map[string]int  `json:"requests"`             // of the cleaner, by verb and resource
	Skipped              []string        `json:"skipped"`              // what the cluster could not do, and why
}

// Iteration is one pass of the scenario in one lane.
type Iteration struct {
	Number    int           `json:"number"` // its place in the schedule, from 1; iterations complete in another order
	Lane      string        `json:"lane"`
	Network   string        `json:"network"` // kind and families, "DanmNet v4+v6"
	Faults    []string      `json:"faults"`
	Moved     int           `json:"moved"` // pods recreated
	Pods      int           `json:"pods"`
	Endpoints int           `json:"endpoints"`
	Bits      int           `json:"bits"`
	Expected  int           `json:"expected"` // pods x interfaces
	Verdict   check.Verdict `json:"verdict"`  // of the snapshot alone; the whole history is judged at the end
	Note      string        `json:"note,omitempty"`
	Detected  time.Duration `json:"detectedNs"` // fault to the pods' deletion mark
	Recreated time.Duration `json:"recreatedNs"`
	Settled   time.Duration `json:"settledNs"`
	Took      time.Duration `json:"tookNs"`
}
