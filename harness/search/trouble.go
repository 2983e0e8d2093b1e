package search

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/danm-chaos/danm-chaos/harness/schedule"
)

// TroubleKind says in which way a simulator showed that it is wrong.
type TroubleKind string

// Kinds of trouble.
const (
	Diverged TroubleKind = "divergence" // two runs of one seed differ
	Unplayed TroubleKind = "error"      // it could not go on by itself
	Died     TroubleKind = "death"      // its process died, or hung until it was ended
)

// Trouble is one way in which the simulator is wrong, with all that somebody
// needs who takes it up. It says nothing about the cleaner.
type Trouble struct {
	Kind     TroubleKind `json:"kind"`
	Seed     uint64      `json:"seed"`
	Scenario string      `json:"scenario,omitempty"`
	Message  string      `json:"message"` // in a line
	// Words are the last of a process that died, its goroutines included.
	Words string `json:"words,omitempty"`
	// Step is the first in which two runs differ, Once and Again are both to
	// their ends. Of a run that could not go on, Once has the last steps.
	Step  int      `json:"step,omitempty"`
	Once  []string `json:"once,omitempty"`
	Again []string `json:"again,omitempty"`
	// Simulation has the choices of the first of two runs.
	Simulation *schedule.Simulation `json:"simulation,omitempty"`
}

// String is the trouble in a line.
func (t Trouble) String() string {
	if t.Scenario == "" {
		return fmt.Sprintf("%s, seed %d: %s", t.Kind, t.Seed, t.Message)
	}
	return fmt.Sprintf("%s, seed %d of %s: %s", t.Kind, t.Seed, t.Scenario, t.Message)
}

// brief is the trouble without what playing it again may show.
func (t Trouble) brief() Trouble {
	t.Once, t.Again, t.Simulation = nil, nil, nil
	return t
}

// divergence names the first step in which two runs of one seed differ.
func divergence(scenario string, first, second Played) Trouble {
	t := Trouble{
		Kind: Diverged, Seed: first.Seed, Scenario: scenario, Once: first.Trace, Again: second.Trace, Simulation: first.Simulation,
		Message: "equal steps, different records",
	}
	for i := range max(len(first.Trace), len(second.Trace)) {
		if one, other := lineOf(first.Trace, i), lineOf(second.Trace, i); one != other {
			t.Step, t.Message = i, fmt.Sprintf("step %d: once %q, once %q", i, one, other)
			break
		}
	}
	return t
}

func lineOf(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "the end"
}

// merged are troubles of parts of a search, those of the lowest seeds first.
func merged(a, b []Trouble) []Trouble {
	if len(b) == 0 {
		return a
	}
	all := append(slices.Clone(a), b...)
	slices.SortStableFunc(all, func(x, y Trouble) int { return cmp.Compare(x.Seed, y.Seed) })
	return all[:min(len(all), failuresMax)]
}
