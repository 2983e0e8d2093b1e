package timeline

import (
	"time"
)

// Timeline is what happened in a run, over time. All offsets count from Start.
type Timeline struct {
	Start    time.Time
	Span     time.Duration // from the first record to the last
	All      Lane          // all lanes together
	Lanes    []Lane        // by name
	Releases []Release     // in the order of time
	Skipped  []string      // what the cluster could not do, sorted
	Gaps     []string      // what the history itself says is missing
	// RequestsPerIteration counts the cleaner's mutating requests of each
	// iteration of each lane, in the order of their snapshots.
	RequestsPerIteration []int
	Requests             map[string]int // of the cleaner, by verb and resource
}

// Lane is one lane, or all of them together, over time.
type Lane struct {
	Name                  string
	Pods, Endpoints, Bits Curve
	Bands                 []Band
	Steps                 []Step
}

// Curve is a count over time, as steps: a value holds until the next point.
type Curve []Point

// Point is a value from an offset on.
type Point struct {
	At    time.Duration
	Value int
}

// Last returns the final value of the curve, 0 if it never had one.
func (c Curve) Last() int {
	if len(c) == 0 {
		return 0
	}
	return c[len(c)-1].Value
}

// Max returns the largest value of the curve.
func (c Curve) Max() int {
	most := 0
	for _, p := range c {
		most = max(most, p.Value)
	}
	return most
}

// set appends a value. Several values of one moment leave the last.
func (c *Curve) set(at time.Duration, value int) {
	if n := len(*c); n > 0 {
		switch last := &(*c)[n-1]; {
		case last.Value == value:
			return
		case last.At == at:
			last.Value = value
			return
		}
	}
	*c = append(*c, Point{at, value})
}

// Band is the time during which a fault was in effect.
type Band struct {
	From, Until time.Duration
	Lane        string
	Fault       string // the verb
	Target      string
	Iteration   int
}

// Step is an operation of the schedule when it was invoked.
type Step struct {
	At   time.Duration
	Text string
}

// Release is an address that the cleaner gave back.
type Release struct {
	At       time.Duration
	Lane     string
	Network  string
	Address  string
	Pod      string // whose it was last, namespace/name
	PodUID   string
	Endpoint string
	// After is how long the owner had been gone. It is known only if OwnerGone.
	After     time.Duration
	OwnerGone bool
}

// Counts are the three numbers that must agree.
type Counts struct{ Pods, Endpoints, Bits int }
