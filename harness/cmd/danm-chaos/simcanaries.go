package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/harness/canary"
	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
	"github.com/danm-chaos/danm-chaos/harness/search"
)

// canarySeedsMax bounds one search for one canary.
const canarySeedsMax = 10_000

// canaryTries is how often each canary is looked for. One search is luck.
const canaryTries = 5

// hunted is what came of the searches for one canary.
type hunted struct {
	name       string
	seeds      []int // of each search that found it, sorted
	took       []time.Duration
	missed     int             // searches without result
	broken     []string        // the invariants that were broken, sorted
	unexpected []search.Played // runs that broke what the canary should leave alone
}

func (h hunted) isFound() bool { return h.missed == 0 && len(h.unexpected) == 0 && len(h.took) > 0 }

// huntCanaries looks for seeds that show each canary's defect.
func (a *app) huntCanaries(ctx context.Context, f runFlags, names []string, tries int) error {
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
	a.printHuntRow("canary", "should break", "broken", "seeds", "median", "worst", "")
	var rows []hunted
	for _, name := range names {
		row, err := huntOften(ctx, session, s, name, tries)
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
	return a.concludeHunt(f, rows, len(names))
}

// huntOften searches several times, each time among other seeds.
func huntOften(ctx context.Context, session *search.Session, s search.Sweep, name string, tries int) (hunted, error) {
	row := hunted{name: name}
	for range tries {
		began := time.Now()
		p, seeds, isFound, err := hunt(ctx, session, s, name)
		if err != nil {
			return row, err
		}
		s.First += canarySeedsMax
		if !isFound {
			row.missed++
			continue
		}
		row.seeds, row.took = append(row.seeds, seeds), append(row.took, time.Since(began))
		row.broken = append(row.broken, numbersOf(p.Violations)...)
		if _, isExpected := judgeCanary(name, p.Violations); !isExpected {
			row.unexpected = append(row.unexpected, p)
		}
	}
	slices.Sort(row.seeds)
	slices.Sort(row.took)
	slices.Sort(row.broken)
	row.broken = slices.Compact(row.broken)
	return row, nil
}

// hunt searches until a run breaks what the canary should break, or what it
// should not. Runs that only show a consequence are passed over.
func hunt(ctx context.Context, session *search.Session, s search.Sweep, name string) (search.Played, int, bool, error) {
	jobs := make([]search.Job, 0, canarySeedsMax)
	shapes, err := shapesFor(s, name)
	if err != nil {
		return search.Played{}, 0, false, err
	}
	for i := range uint64(canarySeedsMax) {
		shape := shapes[i%uint64(len(shapes))]
		shape.Seed = s.First + i
		jobs = append(jobs, search.Job{Number: int(i), Cleaner: "canary:" + name, Shape: &shape, Seeds: 1})
	}
	p, place, isFound, err := session.First(ctx, jobs, func(p search.Played) bool {
		isBroken, isExpected := judgeCanary(name, p.Violations)
		return p.Trouble != "" || isBroken || !isExpected
	})
	if err == nil && p.Trouble != "" {
		err = fmt.Errorf("seed %d: %s", p.Seed, p.Trouble)
	}
	return p, place + 1, isFound, err
}

// judgeCanary tells whether violations include what the canary should break, and
// whether they are all of the kinds that are expected of it.
func judgeCanary(name string, violations []check.Violation) (isBroken, isExpected bool) {
	should, may := canary.Breaks(name)
	isExpected = true
	for _, number := range numbersOf(violations) {
		switch {
		case slices.Contains(should, number):
			isBroken = true
		case !slices.Contains(may, number):
			isExpected = false
		}
	}
	return isBroken, isExpected
}

// numbersOf lists the numbers of the invariants that were broken.
func numbersOf(violations []check.Violation) []string {
	var numbers []string
	for _, v := range violations {
		number, _, _ := strings.Cut(string(v.Invariant), " ")
		numbers = append(numbers, number)
	}
	slices.Sort(numbers)
	return slices.Compact(numbers)
}

// shapesFor returns what a canary is hunted in: the scenario that shows it best,
// as it is and with few pods, where more seeds fit into a second, and some of it
// with faults that make each other worse.
func shapesFor(s search.Sweep, name string) ([]schedule.Shape, error) {
	scenario, err := namedScenario(canary.Scenario(name))
	if err != nil {
		return nil, err
	}
	whole := scenario.Shape(danm.Group(s.Shapes[0].Group), s.Shapes[0].CNI)
	if canary.IsDry(name) {
		whole.DryRunPercent = 100
	}
	whole.Feature = cmp.Or(schedule.Feature(canary.Feature(name)), schedule.NoFeature)
	few := whole
	few.Pods, few.Nodes = huntedPods, huntedPods
	plotted := few
	plotted.Plotted = true
	return []schedule.Shape{few, plotted, plotted, plotted, whole}, nil
}

// huntedPods is how many pods, on as many nodes, a small hunt has.
const huntedPods = 2

// printHunted prints a row as soon as it is known.
func (a *app) printHunted(r hunted) {
	should, _ := canary.Breaks(r.name)
	remark := "found"
	switch {
	case len(r.unexpected) > 0:
		remark = "UNEXPECTED"
	case r.missed > 0:
		remark = fmt.Sprintf("NOT FOUND, %d of %d times", r.missed, r.missed+len(r.took))
	}
	seeds, median, worst := "-", "-", "-"
	if n := len(r.took); n > 0 {
		seeds = fmt.Sprintf("%d (%d)", r.seeds[n/2], r.seeds[n-1])
		median, worst = seconds(r.took[n/2]), seconds(r.took[n-1])
	}
	a.printHuntRow(r.name, strings.Join(should, " "), strings.Join(r.broken, " "), seeds, median, worst, remark)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2fs", d.Seconds()) }

// printHuntRow prints columns of a fixed width, as rows are printed one by one.
func (a *app) printHuntRow(name, should, broken, seeds, median, worst, remark string) {
	row := fmt.Sprintf("%-21s %-12s %-15s %-13s %-7s %-7s %s", name, should, broken, seeds, median, worst, remark)
	fmt.Fprintln(a.stdout, strings.TrimRight(row, " "))
}

// concludeHunt sums up: every canary must have been found, by what it should
// break and nothing that it should leave alone.
func (a *app) concludeHunt(f runFlags, rows []hunted, wanted int) error {
	failed := 0
	var medians, worst []time.Duration
	var unexpected []search.Played
	for _, r := range rows {
		if n := len(r.took); n > 0 {
			medians, worst = append(medians, r.took[n/2]), append(worst, r.took[n-1])
		}
		if !r.isFound() {
			failed++
		}
		unexpected = append(unexpected, r.unexpected...)
	}
	slices.Sort(medians)
	if len(medians) > 0 {
		fmt.Fprintf(a.stdout, "\n%d canaries, %d not as they should be; of the medians, half are below %s and the longest is %s; the worst search took %s\n",
			len(rows), failed, seconds(medians[len(medians)/2]), seconds(medians[len(medians)-1]), seconds(slices.Max(worst)))
	}
	if err := a.storeUnexpected(f, unexpected); err != nil {
		return err
	}
	switch {
	case len(rows) < wanted:
		return exitWith(exitUnknown)
	case failed > 0:
		return exitWith(exitInvalid)
	}
	return nil
}

// storeUnexpected keeps runs in which a canary broke what it should leave alone.
// Either the canary is not understood, or a checker is wrong.
func (a *app) storeUnexpected(f runFlags, runs []search.Played) error {
	if len(runs) == 0 {
		return nil
	}
	dir, err := newRunDir(f.out, time.Now(), 0)
	if err != nil {
		return err
	}
	for i, p := range runs {
		path := dir.join(fmt.Sprintf("unexpected-%d.json", i))
		if err := storeSimulation(path, *p.Simulation); err != nil {
			return err
		}
		fmt.Fprintf(a.stdout, "%s broke %s: ", p.Simulation.Cleaner, strings.Join(numbersOf(p.Violations), " "))
		printFirst(a, p)
		fmt.Fprintf(a.stdout, "reproduce: %s\n", commandLine(programName(), "replay", path))
	}
	return nil
}
