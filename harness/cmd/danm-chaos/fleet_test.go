package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/danm-chaos/danm-chaos/clusters/existing/fleet"
	"github.com/danm-chaos/danm-chaos/clusters/sim"
	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
	"github.com/danm-chaos/danm-chaos/harness/search"
)

// playedShard is what a shard hands over when nothing was wrong.
func playedShard(t *testing.T, shard search.Shard, change func(*search.ShardResult)) []byte {
	t.Helper()
	r := search.ShardResult{Shard: shard, Commit: "c1", Took: time.Minute, Totals: search.Totals{
		Seeds: int(shard.Seeds()), Verdicts: map[check.Verdict]int{check.Valid: int(shard.Seeds())}, Digest: search.Digest(shard.First)}}
	if change != nil {
		change(&r)
	}
	data, err := search.EncodeShard(r, fleet.ResultBytesMax)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// newCampaign has four shards of five seeds, and none of them yet.
func newCampaign(t *testing.T, args ...string) (*campaign, *bytes.Buffer, *bytes.Buffer) {
	t.Helper()
	var out, errs bytes.Buffer
	a := &app{stdout: &out, stderr: &errs}
	var f fleetFlags
	flags := pflag.NewFlagSet("fleet", pflag.ContinueOnError)
	f.register(flags)
	if err := flags.Parse(append([]string{"--seeds", "1-20", "--image", "i", "--kubeconfig", "k", "--context", "c", "--out", t.TempDir()}, args...)); err != nil {
		t.Fatal(err)
	}
	s, err := a.sweepOf(f.runFlags, []string{"node-shutdown"})
	if err != nil {
		t.Fatal(err)
	}
	p, err := newFleetPlan(f, s)
	if err != nil {
		t.Fatal(err)
	}
	p.Started = time.Unix(1_700_000_000, 0).UTC()
	dir, err := newRunDir(f.out, p.Started, 1)
	if err != nil {
		t.Fatal(err)
	}
	p.RunID = dir.id
	c := &campaign{app: a, flags: f, plan: p, folder: fleetFolder{dir}, sweep: s, gathered: map[search.Shard]search.ShardResult{}, began: time.Now()}
	if err := c.folder.create(p); err != nil {
		t.Fatal(err)
	}
	return c, &out, &errs
}

func (c *campaign) takes(t *testing.T, shard search.Shard, data []byte) (more bool) {
	t.Helper()
	more, err := c.took(shard.String(), data)
	if err != nil {
		t.Fatal(err)
	}
	return more
}

func TestAFleetIsResumedFromItsFolder(t *testing.T) {
	c, _, _ := newCampaign(t, "--cleaner", "canary:by-name", "--keep-going", "--pods", "2", "--cni", "careful")
	for _, shard := range c.plan.Shards[1:3] {
		c.takes(t, shard, playedShard(t, shard, nil))
	}
	// A crash in the middle of writing leaves this.
	half := c.folder.join(gatheredDir, c.plan.Shards[0].String()+gatheredKind)
	if err := os.WriteFile(half, []byte("half"), 0o644); err != nil {
		t.Fatal(err)
	}
	folder, p, err := openFleetFolder(fleetFlags{resume: c.folder.path})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c.plan, p); diff != "" {
		t.Errorf("plan (-stored +read):\n%s", diff)
	}
	again := p.flags(fleetFlags{})
	if again.cleaner != "canary:by-name" || !again.keepGoing || again.pods != 2 || again.cni != "careful" || again.seeds != "1-20" || again.image != "i" {
		t.Errorf("flags %+v", again.runFlags)
	}
	gathered, err := folder.kept(p)
	if err != nil || len(gathered) != 2 || gathered[p.Shards[1]].Totals.Seeds != 5 {
		t.Errorf("kept %v, %v", gathered, err)
	}
}

// inTrouble has the first seed of a shard show that the simulator is wrong.
func inTrouble(kind search.TroubleKind, message string) func(*search.ShardResult) {
	return func(r *search.ShardResult) {
		r.Totals.Troubles = []search.Trouble{{Kind: kind, Seed: r.Shard.First, Scenario: "node-shutdown", Message: message}}
	}
}

func TestWhatIsMissingOfAFleetDecidesItsVerdict(t *testing.T) {
	wrong := func(r *search.ShardResult) {
		seed := r.Shard.First
		r.Totals.Seeds, r.Totals.Verdicts = 1, map[check.Verdict]int{check.Invalid: 1}
		r.Totals.Failures = []search.Played{{Seed: seed, Verdict: check.Invalid, Violations: []check.Violation{{Invariant: check.LiveAttachment, Message: "gone"}},
			Simulation: &schedule.Simulation{Seed: seed}}}
		r.Shrunk = map[uint64]schedule.Simulation{seed: {Name: "small"}}
	}
	tests := []struct {
		name   string
		change map[int]func(*search.ShardResult) // of shards, by index
		lost   map[int]string
		want   int
		said   []string
		left   []string // files of the run directory
	}{
		{name: "all are there", want: exitValid, said: []string{"Valid", "run node-shutdown --cluster sim --cleaner fixed --seeds 1-20"}},
		{name: "one is lost", lost: map[int]string{1: "exit code 137"}, want: exitUnknown,
			said: []string{"seeds 6-10 are lost: exit code 137", "fleet --resume", "--kubeconfig k --context c"}},
		{name: "one was not played", lost: map[int]string{3: ""}, want: exitUnknown, said: []string{"seeds 16-20 were not played to their end", "fleet --resume"}},
		{name: "one is wrong, one is lost", change: map[int]func(*search.ShardResult){0: wrong}, lost: map[int]string{2: "gone"}, want: exitInvalid,
			said: []string{"seed 1: I1 LiveAttachment: gone", "failure-1.json"}},
		{name: "one is of another build", change: map[int]func(*search.ShardResult){2: func(r *search.ShardResult) { r.Commit = "c2" }}, want: exitUnknown,
			said: []string{"shards were played by different builds: c1, c2"}},
		{name: "the simulator is wrong", change: map[int]func(*search.ShardResult){3: inTrouble(search.Unplayed, "stuck")}, want: exitHarnessBug,
			said: []string{"bug in the simulator: error, seed 16 of node-shutdown: stuck", "run node-shutdown --cluster sim --cleaner fixed --seeds 16-16\n"}},
		{name: "two runs of a seed differ", change: map[int]func(*search.ShardResult){1: inTrouble(search.Diverged, "step 3")}, want: exitHarnessBug,
			said: []string{"bug in the simulator: divergence, seed 6 of node-shutdown: step 3", "stress node-shutdown --cluster sim --cleaner fixed --seeds 6-6 --repeat 200\n"}},
		{name: "two runs of a seed differ, another is wrong, one is lost", change: map[int]func(*search.ShardResult){0: wrong, 1: inTrouble(search.Diverged, "step 3")},
			lost: map[int]string{2: "gone"}, want: exitHarnessBug, left: []string{"failure-1.json", "failure-1.small.json", "divergence-6.json", "run.json", "verdicts.json"},
			said: []string{"seed 1: I1 LiveAttachment: gone", "verdicts: 10 Valid, 1 Invalid", "seeds 11-15 are lost: gone", "stress node-shutdown"}},
		{name: "failures had no room", change: map[int]func(*search.ShardResult){0: func(r *search.ShardResult) { wrong(r); r.Omitted = 7 }}, want: exitInvalid,
			said: []string{"seeds 1-5: 7 failures more had no room"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, out, errs := newCampaign(t)
			for i, shard := range c.plan.Shards {
				if why, isLost := tt.lost[i]; isLost {
					c.lose(shard, why)
					continue
				}
				c.takes(t, shard, playedShard(t, shard, tt.change[i]))
			}
			code := c.app.exitCode(c.conclude(t.Context()))
			text := out.String() + errs.String()
			if code != tt.want {
				t.Errorf("exit code %d, want %d", code, tt.want)
			}
			for _, want := range tt.said {
				if !strings.Contains(text, want) {
					t.Errorf("it does not say %q:\n%s", want, text)
				}
			}
			for _, file := range tt.left {
				if _, err := os.Stat(c.folder.join(file)); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestAViolationIsEnoughUnlessAllAreWanted(t *testing.T) {
	invalid := func(r *search.ShardResult) {
		r.Totals.Verdicts = map[check.Verdict]int{check.Valid: 4, check.Invalid: 1}
	}
	for _, tt := range []struct {
		name   string
		args   []string
		change func(*search.ShardResult)
		want   bool
	}{
		{"nothing wrong", nil, nil, true},
		{"a violation", nil, invalid, false},
		{"a violation, and going on", []string{"--keep-going"}, invalid, true},
		{"a simulator that is wrong, and going on", []string{"--keep-going"}, inTrouble(search.Unplayed, "stuck"), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, _, _ := newCampaign(t, tt.args...)
			if got := c.takes(t, c.plan.Shards[0], playedShard(t, c.plan.Shards[0], tt.change)); got != tt.want {
				t.Errorf("goes on: %v, want %v", got, tt.want)
			}
		})
	}
}

func TestAResultThatCannotBeReadLosesItsShard(t *testing.T) {
	c, _, _ := newCampaign(t)
	shard := c.plan.Shards[0]
	if !c.takes(t, shard, []byte("junk")) || !strings.Contains(c.lost[shard], "unpacking shard 1-5") || len(c.gathered) != 0 {
		t.Errorf("lost %v, gathered %v", c.lost, c.gathered)
	}
}

func TestWhatIsLeftInTheClusterIsToldWithTheCure(t *testing.T) {
	c, _, errs := newCampaign(t)
	for _, shard := range c.plan.Shards {
		c.takes(t, shard, playedShard(t, shard, nil))
	}
	c.leftover = os.ErrDeadlineExceeded
	code := c.app.exitCode(c.conclude(t.Context()))
	if code != exitUnclean || !strings.Contains(errs.String(), "clean "+c.plan.RunID) {
		t.Errorf("exit code %d, %q", code, errs)
	}
}

func TestProgressTellsWhatIsGatheredAndWhatStillRuns(t *testing.T) {
	c, out, _ := newCampaign(t)
	c.takes(t, c.plan.Shards[0], playedShard(t, c.plan.Shards[0], nil))
	c.told(fleet.Status{
		Words:   map[string]string{"6-10": `{"seeds":3,"verdicts":{"Valid":2,"Invalid":1}}`, "11-15": "", "16-20": "not a word of ours"},
		Waiting: map[string]int{"Unschedulable": 2, "ImagePullBackOff": 1},
	})
	for _, want := range []string{"1 of 4 shards, 8 seeds, ", ", 1 Invalid, 0 of ", "waiting: 1 ImagePullBackOff, waiting: 2 Unschedulable\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got %q, want %q in it", out, want)
		}
	}
}

// No shard of four reaches everything, all of them together do.
func TestCoverageIsJudgedForAllShardsTogether(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spare schedule.FaultKind // fires in none
		want  int
	}{
		{"everything is reached by some shard", "", exitValid},
		{"one fault is fired by none", schedule.SimFaultKinds()[0], exitUnknown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, out, _ := newCampaign(t, "--seeds", "1-2000")
			for i, shard := range c.plan.Shards {
				c.takes(t, shard, playedShard(t, shard, func(r *search.ShardResult) { cover(r, i, tt.spare) }))
			}
			code := c.app.exitCode(c.conclude(t.Context()))
			if said := strings.Contains(out.String(), "never fired"); code != tt.want || said != (tt.spare != "") {
				t.Errorf("exit code %d, want %d:\n%s", code, tt.want, out)
			}
		})
	}
}

// cover has a shard reach its quarter of what there is.
func cover(r *search.ShardResult, quarter int, spare schedule.FaultKind) {
	r.Totals.Fired, r.Totals.Reached = map[schedule.FaultKind]int{}, map[string]int{}
	for i, kind := range schedule.SimFaultKinds() {
		if i%4 == quarter && kind != spare {
			r.Totals.Fired[kind] = 1
		}
	}
	for i, what := range sim.Sometimes() {
		if i%4 == quarter {
			r.Totals.Reached[what] = 1
		}
	}
}
