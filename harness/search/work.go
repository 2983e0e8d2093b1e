package search

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
)

// Job is what a worker is asked to do: one simulation, or the seeds of a shape.
type Job struct {
	Number     int                  `json:"number"`
	Cleaner    string               `json:"cleaner"` // as on the command line
	Simulation *schedule.Simulation `json:"simulation,omitempty"`
	Shape      *schedule.Shape      `json:"shape,omitempty"` // its seed is the first
	Seeds      int                  `json:"seeds,omitempty"`
	// Whole asks for choices, trace and story even if nothing is wrong.
	Whole bool `json:"whole,omitempty"`
	// Widths asks for them alone, Trace for trace and choices.
	Widths   bool `json:"widths,omitempty"`
	Trace    bool `json:"trace,omitempty"`
	BlameAny bool `json:"blameAny,omitempty"`
}

// Played is what came of one simulation.
type Played struct {
	Job        int                  `json:"job"`
	Seed       uint64               `json:"seed"`
	Digest     uint64               `json:"digest"`
	Verdict    check.Verdict        `json:"verdict"`
	Violations []check.Violation    `json:"violations,omitempty"`
	Findings   int                  `json:"findings,omitempty"` // what others than the cleaner broke
	Unknowns   []string             `json:"unknowns,omitempty"`
	Steps      int                  `json:"steps"`
	Virtual    time.Duration        `json:"virtualNs"`
	Fired      []schedule.FaultKind `json:"fired,omitempty"`
	Planned    []schedule.FaultKind `json:"planned,omitempty"`
	Reached    map[string]int       `json:"reached,omitempty"`
	Counts     string               `json:"counts,omitempty"`
	// These only where something is wrong, or was asked for.
	Simulation *schedule.Simulation `json:"simulation,omitempty"` // with its choices
	Told       []check.Violation    `json:"told,omitempty"`       // the findings themselves
	Widths     []int                `json:"widths,omitempty"`
	Trace      []string             `json:"trace,omitempty"`
	Story      []string             `json:"story,omitempty"`
	// Trouble says that the simulator is wrong.
	Trouble string `json:"trouble,omitempty"`
	// IsLast marks the last of a job.
	IsLast bool `json:"isLast,omitempty"`
}

// Player plays and judges one simulation.
type Player func(sim schedule.Simulation, j Job) Played

// Work does jobs until in ends. It is the whole life of a worker.
func Work(in io.Reader, out io.Writer, play Player) error {
	jobs, answers := json.NewDecoder(in), bufio.NewWriter(out)
	encoder := json.NewEncoder(answers)
	for {
		var j Job
		if err := jobs.Decode(&j); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading a job: %w", err)
		}
		for i := range max(1, j.Seeds) {
			sim, err := j.simulation(i)
			if err != nil {
				return err
			}
			p := play(sim, j)
			p.Job, p.Seed, p.IsLast = j.Number, sim.Seed, i+1 >= j.Seeds
			if err := encoder.Encode(p); err != nil {
				return fmt.Errorf("writing an answer: %w", err)
			}
			// One by one, so that nothing is lost if the next seed hangs.
			if err := answers.Flush(); err != nil {
				return fmt.Errorf("writing an answer: %w", err)
			}
		}
	}
}

// simulation returns the i-th of the job.
func (j Job) simulation(i int) (schedule.Simulation, error) {
	if j.Simulation != nil {
		return *j.Simulation, nil
	}
	shape := *j.Shape
	shape.Seed += uint64(i)
	return schedule.Draw(shape)
}
