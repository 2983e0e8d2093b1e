package search

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
)

func TestSplitSharesOutEverySeedOnce(t *testing.T) {
	for _, tt := range []struct {
		name string
		all  Shard
		n    int
		want string
	}{
		{"as many for each", Shard{1, 8}, 4, "[1-2 3-4 5-6 7-8]"},
		{"the first have one more", Shard{10, 16}, 3, "[10-12 13-14 15-16]"},
		{"fewer seeds than shards", Shard{5, 6}, 4, "[5-5 6-6]"},
		{"one shard", Shard{3, 9}, 1, "[3-9]"},
		{"the highest seeds that there are", Shard{1<<64 - 4, 1<<64 - 2}, 2, "[18446744073709551612-18446744073709551613 18446744073709551614-18446744073709551614]"},
	} {
		if got := fmt.Sprint(tt.all.Split(tt.n)); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestAShardIsReadBackFromItsName(t *testing.T) {
	for text, want := range map[string]Shard{"1-250": {1, 250}, "7": {7, 7}, "0-0": {0, 0}} {
		if got, err := ParseShard(text); err != nil || got != want {
			t.Errorf("%s: got %s, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "-", "5-3", "a-b", "1-2-3", "-1"} {
		if got, err := ParseShard(text); err == nil {
			t.Errorf("%q: got %s, want an error", text, got)
		}
	}
}

// sweepShards plays the shards one after the other and merges them in any order.
func sweepShards(t *testing.T, s Sweep, n int) Totals {
	t.Helper()
	shards := Shard{s.First, s.Last}.Split(n)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(shards), func(i, j int) { shards[i], shards[j] = shards[j], shards[i] })
	var merged Totals
	for _, shard := range shards {
		s.First, s.Last = shard.First, shard.Last
		totals := sweep(t, s)
		data, err := EncodeShard(ShardResult{Shard: shard, Totals: totals}, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		back, err := DecodeShard(data, shard)
		if err != nil {
			t.Fatal(err)
		}
		merged.Merge(back.Totals)
	}
	return merged
}

func TestShardsMergeToWhatOneProcessFinds(t *testing.T) {
	s := Sweep{Pool: pool("honest"), Cleaner: "90", First: 3, Last: 152, KeepGoing: true}
	whole := sweep(t, s)
	for _, n := range []int{1, 4, 7} {
		merged := sweepShards(t, s, n)
		// Each shard runs its first seed twice, and a trace says nothing new.
		merged.Again, merged.Granted, merged.Took, whole.Took = whole.Again, whole.Granted, 0, 0
		whole.Failures, merged.Failures = alike(whole.Failures), alike(merged.Failures)
		if diff := cmp.Diff(whole, merged); diff != "" {
			t.Errorf("%d shards (-one process +merged):\n%s", n, diff)
		}
	}
}

func alike(failures []Played) []Played {
	slim := withoutTraces(failures)
	for i := range slim {
		slim[i].Job, slim[i].IsLast = 0, false // how the seeds were dealt
	}
	return slim
}

func TestTheDigestTellsHistoriesApart(t *testing.T) {
	digest := func(histories ...uint64) Digest {
		var d Digest
		for i, h := range histories {
			d += digestOf(uint64(i), h)
		}
		return d
	}
	same := digest(7, 8, 9)
	for name, other := range map[string]Digest{
		"one differs": digest(7, 8, 10), "two changed places": digest(8, 7, 9), "one is missing": digest(7, 8), "one is equal to another": digest(7, 7, 9),
	} {
		if other == same {
			t.Errorf("%s, and the digest is the same", name)
		}
	}
}

// failed is a failure that no compressor makes small.
func failed(seed uint64) Played {
	var noise strings.Builder
	random := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		fmt.Fprintf(&noise, "%016x", random.Uint64())
	}
	return Played{Seed: seed, Verdict: check.Invalid, Unknowns: []string{noise.String()}, Trace: []string{"long"}}
}

func TestAResultThatDoesNotFitLosesFailuresAndSaysHowMany(t *testing.T) {
	r := ShardResult{Shard: Shard{1, 20}, Totals: Totals{Seeds: 20, Verdicts: map[check.Verdict]int{check.Invalid: 8}},
		Shrunk: map[uint64]schedule.Simulation{1: {Name: "small"}}}
	for seed := range uint64(8) {
		r.Totals.Failures = append(r.Totals.Failures, failed(seed+1))
	}
	const max = 8 << 10
	data, err := EncodeShard(r, max)
	if err != nil || len(data) > max {
		t.Fatalf("%d bytes, %v", len(data), err)
	}
	back, err := DecodeShard(data, r.Shard)
	if err != nil {
		t.Fatal(err)
	}
	kept := back.Totals.Failures
	if len(kept) == 0 || len(kept)+back.Omitted != 8 || kept[0].Seed != 1 || kept[0].Trace != nil || len(back.Shrunk) > 0 {
		t.Errorf("kept %d, omitted %d, first %+v", len(kept), back.Omitted, kept[0].Seed)
	}
	if back.Totals.Verdict(nil) != check.Invalid {
		t.Error("without its failures the shard is not Invalid any more")
	}
	if _, err := EncodeShard(r, 10); err == nil {
		t.Error("a result fits into ten bytes")
	}
}

func TestATroubleThatDoesNotFitLosesItsTracesAndStays(t *testing.T) {
	long := failed(9).Unknowns
	r := ShardResult{Shard: Shard{1, 20}, Totals: Totals{Seeds: 4, Troubles: []Trouble{
		{Kind: Diverged, Seed: 3, Scenario: "test", Message: "step 1", Once: long, Again: failed(8).Unknowns, Simulation: &schedule.Simulation{Seed: 3}},
	}}}
	for name, tt := range map[string]struct {
		max  int
		want []string
	}{"there is room": {1 << 20, long}, "there is none": {1 << 10, nil}} {
		data, err := EncodeShard(r, tt.max)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		back, err := DecodeShard(data, r.Shard)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := back.Totals.Troubles; len(got) != 1 || got[0].Message != "step 1" || !slices.Equal(got[0].Once, tt.want) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestWhatIsNoAnswerToTheShardIsRefused(t *testing.T) {
	good, err := EncodeShard(ShardResult{Shard: Shard{1, 2}, Totals: Totals{Seeds: 2}}, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	other, err := packed(ShardResult{Version: shardVersion + 1, Shard: Shard{1, 2}})
	if err != nil {
		t.Fatal(err)
	}
	many, err := EncodeShard(ShardResult{Shard: Shard{1, 2}, Totals: Totals{Seeds: 3}}, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	few, err := EncodeShard(ShardResult{Shard: Shard{1, 2}, Totals: Totals{Seeds: 1}}, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"nothing": nil, "no archive": []byte("hello"), "half of it": good[:len(good)/2], "another format": other, "too many seeds": many, "not all seeds": few,
	} {
		if _, err := DecodeShard(data, Shard{1, 2}); err == nil {
			t.Errorf("%s: taken for a result", name)
		}
	}
	if _, err := DecodeShard(good, Shard{3, 4}); err == nil {
		t.Error("the result of another shard was taken")
	}
}
