package sim

import (
	"hash/fnv"
	"math/rand/v2"
	"time"

	"github.com/danm-chaos/danm-chaos/harness/schedule"
)

// Streams of a simulation's seed.
const (
	streamChoices = 1
	streamRanks   = 2
)

// starvedMax bounds for how long somebody is left waiting.
const starvedMax = 20 * time.Second

// rankChangeOneIn is how rarely the first in rank falls to the end.
const rankChangeOneIn = 40

// chooser decides what happens next among options in a fixed order: as stored,
// then as drawn, or else the first.
type chooser struct {
	stored []int
	search schedule.Search
	rng    *rand.Rand

	scratch []int // reused

	taken  []int // choices so far
	widths []int // of how many

	ranks   map[string]uint64 // by actor
	starved string            // actor that has to wait
	until   time.Time         // for how long
}

func newChooser(s schedule.Simulation) *chooser {
	return &chooser{
		stored: s.Choices, search: s.Search, rng: rand.New(rand.NewPCG(s.Seed, streamChoices)), ranks: map[string]uint64{},
	}
}

// choose returns the index of an option. calm leaves out delays that nothing
// makes necessary.
func (c *chooser) choose(options []option, calm bool) int {
	if len(options) == 1 {
		return 0
	}
	choice := 0
	switch at := len(c.taken); {
	case at < len(c.stored):
		choice = c.stored[at] % len(options)
	case c.search.Draw:
		choice = c.draw(options, calm)
	}
	c.taken = append(c.taken, choice)
	c.widths = append(c.widths, len(options))
	return choice
}

func (c *chooser) draw(options []option, calm bool) int {
	events := len(options)
	for events > 0 && options[events-1].kind == passTime {
		events--
	}
	if events == 0 {
		return 0
	}
	if !calm && events < len(options) && c.percent(c.search.TimePercent) {
		return events + c.rng.IntN(len(options)-events)
	}
	c.starve(options[:events], calm)
	candidates := c.scratch[:0]
	for i := range events {
		if calm || options[i].actor != c.starved || c.starved == "" {
			candidates = append(candidates, i)
		}
	}
	c.scratch = candidates
	switch {
	case len(candidates) == 0 && events < len(options):
		return len(options) - 1 - c.rng.IntN(len(options)-events)
	case len(candidates) == 0:
		return c.rng.IntN(events)
	case c.search.Priorities && !calm:
		return c.first(options, candidates)
	}
	return candidates[c.rng.IntN(len(candidates))]
}

func (c *chooser) percent(p int) bool { return p > 0 && c.rng.IntN(100) < p }

// starve begins and ends the waiting of an actor.
func (c *chooser) starve(options []option, calm bool) {
	now := time.Now()
	if c.starved != "" && (calm || now.After(c.until)) {
		c.starved = ""
	}
	if !calm && c.starved == "" && c.percent(c.search.StarvePercent) {
		c.starved = options[c.rng.IntN(len(options))].actor
		c.until = now.Add(time.Duration(c.rng.Int64N(int64(starvedMax))))
	}
}

// first returns the option whose actor is first in rank.
func (c *chooser) first(options []option, candidates []int) int {
	best := candidates[0]
	for _, i := range candidates[1:] {
		if c.rank(options[i].actor) > c.rank(options[best].actor) {
			best = i
		}
	}
	if c.rng.IntN(rankChangeOneIn) == 0 {
		c.ranks[options[best].actor] = 0
	}
	return best
}

// rank does not depend on the order in which actors turn up.
func (c *chooser) rank(actor string) uint64 {
	r, ok := c.ranks[actor]
	if !ok {
		h := fnv.New64a()
		h.Write([]byte(actor))
		r = rand.New(rand.NewPCG(c.rng.Uint64(), streamRanks^h.Sum64())).Uint64()
		c.ranks[actor] = r
	}
	return r
}
