package main

import (
	"context"
	"fmt"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/harness/canary"
	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
	"github.com/danm-chaos/danm-chaos/harness/search"
)

// canarySeedsMax bounds the search for one canary.
const canarySeedsMax = 20_000

// hunted is what came of the search for one canary.
type hunted struct {
	name, by string
	isFound  bool
	seeds    int
	took     time.Duration
}

// huntCanaries looks for a seed that shows each canary's defect.
func (a *app) huntCanaries(ctx context.Context, f runFlags) error {
	s, err := a.sweepOf(f, nil)
	if err != nil {
		return err
	}
	ctx, signals := catchInterrupts(ctx, a.stderr)
	defer signals.release()
	session, err := s.Pool.Open(ctx)
	if err != nil {
		return err
	}
	defer session.Close()
	var rows []hunted
	for _, name := range canary.Names() {
		row, err := hunt(ctx, session, s, name)
		if err != nil {
			if ctx.Err() != nil {
				break
			}
			fmt.Fprintf(a.stderr, "danm-chaos: bug in the simulator: canary %s: %v\n", name, err)
			return exitWith(exitHarnessBug)
		}
		rows = append(rows, row)
		a.printHunted(row)
	}
	return a.concludeHunt(rows)
}

func hunt(ctx context.Context, session *search.Session, s search.Sweep, name string) (hunted, error) {
	began := time.Now()
	jobs := make([]search.Job, 0, canarySeedsMax)
	shapes, err := shapesFor(s, name)
	if err != nil {
		return hunted{}, err
	}
	for i := range uint64(canarySeedsMax) {
		shape := shapes[i%uint64(len(shapes))]
		shape.Seed = s.First + i
		jobs = append(jobs, search.Job{Number: int(i), Cleaner: "canary:" + name, Shape: &shape, Seeds: 1})
	}
	p, place, isFound, err := session.First(ctx, jobs, func(p search.Played) bool {
		return p.Trouble != "" || p.Verdict == check.Invalid
	})
	if err == nil && p.Trouble != "" {
		err = fmt.Errorf("seed %d: %s", p.Seed, p.Trouble)
	}
	row := hunted{name: name, isFound: isFound, seeds: min(place+1, len(jobs)), took: time.Since(began), by: "-"}
	if isFound {
		row.by = firstInvariant(p.Violations)
	}
	return row, err
}

// shapesFor returns what a canary is hunted in: the scenario that shows it best,
// as it is and with few pods, where more seeds fit into a second.
func shapesFor(s search.Sweep, name string) ([]schedule.Shape, error) {
	scenario, err := namedScenario(canary.Scenario(name))
	if err != nil {
		return nil, err
	}
	whole := scenario.Shape(danm.Group(s.Shapes[0].Group), s.Shapes[0].CNI)
	few := whole
	few.Pods, few.Nodes = huntedPods, huntedPods
	return []schedule.Shape{few, few, few, whole}, nil
}

// huntedPods is how many pods, on as many nodes, a small hunt has.
const huntedPods = 2

func (a *app) printHunted(r hunted) {
	remark := "found"
	if !r.isFound {
		remark = "NOT FOUND"
	}
	out := tabwriter.NewWriter(a.stdout, huntedColumn, 0, 2, ' ', 0)
	fmt.Fprintf(out, "%s\t%s\t%d seeds\t%.2fs\t%s\n", r.name, r.by, r.seeds, r.took.Seconds(), remark)
	out.Flush()
}

// huntedColumn keeps rows that are printed one by one in columns.
const huntedColumn = 22

// concludeHunt sums up: every canary must have been found.
func (a *app) concludeHunt(rows []hunted) error {
	missed := 0
	var took []time.Duration
	for _, r := range rows {
		took = append(took, r.took)
		if !r.isFound {
			missed++
		}
	}
	slices.Sort(took)
	if len(took) > 0 {
		fmt.Fprintf(a.stdout, "\n%d canaries, %d not found, median %.2fs, longest %.2fs\n",
			len(rows), missed, took[len(took)/2].Seconds(), took[len(took)-1].Seconds())
	}
	switch {
	case len(rows) < len(canary.Names()):
		return exitWith(exitUnknown)
	case missed > 0:
		return exitWith(exitInvalid)
	}
	return nil
}
