package timeline

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ipam"
	"github.com/danm-chaos/danm-chaos/harness/history"
)

// resolution of offsets. Finer steps than that cannot be seen.
const resolution = time.Millisecond

// Builder follows a history record by record. What cannot be read is left out:
// the page shows what there is, and the checkers say what is wrong with it.
type Builder struct {
	run     history.Run
	start   time.Time
	last    time.Time
	records []history.Record

	byNamespace map[string]string // lane by namespace
	byNetwork   map[danm.NetworkRef]string
	lanes       map[string]*laneState
	all         laneState
	pods        map[string]string // lane by UID of those that exist
	endpoints   map[string]string // the same
	networks    map[danm.NetworkRef]map[netip.Addr]bool
	flips       map[holding][]flip
	gaps        []string
	skipped     map[string]bool

	added      int
	countsOnly bool // keeps nothing that grows with the history
}

// laneState is a lane while it is followed.
type laneState struct {
	Lane
	now  Counts
	open []int // bands whose fault is still in effect
}

// holding is one address of one network.
type holding struct {
	network danm.NetworkRef
	address netip.Addr
}

// flip is a transition of a bit.
type flip struct {
	set    bool
	record int // index of the write
}

// NewBuilder returns a builder that has seen nothing.
func NewBuilder() *Builder {
	return &Builder{
		byNamespace: map[string]string{}, byNetwork: map[danm.NetworkRef]string{}, lanes: map[string]*laneState{},
		pods: map[string]string{}, endpoints: map[string]string{},
		networks: map[danm.NetworkRef]map[netip.Addr]bool{}, flips: map[holding][]flip{}, skipped: map[string]bool{},
	}
}

// NewCounter returns a builder that knows only the present numbers, for looking
// on at a long run. It cannot build a timeline.
func NewCounter() *Builder {
	b := NewBuilder()
	b.countsOnly = true
	return b
}

// Len returns how many records were added.
func (b *Builder) Len() int { return b.added }

// Counts returns the numbers of all lanes together after the last record.
func (b *Builder) Counts() Counts { return b.all.now }

// CountsOf returns the numbers of one lane after the last record.
func (b *Builder) CountsOf(lane string) Counts {
	if l := b.lanes[lane]; l != nil {
		return l.now
	}
	return Counts{}
}

// Add takes the next records of the history.
func (b *Builder) Add(records ...history.Record) {
	for _, r := range records {
		if b.start.IsZero() {
			b.start = r.Time
		}
		b.last = r.Time
		b.added++
		if !b.countsOnly {
			b.records = append(b.records, r)
		}
		b.add(len(b.records)-1, &r)
	}
}

func (b *Builder) add(index int, r *history.Record) {
	switch {
	case r.Run != nil:
		b.run = *r.Run
	case r.Lane != nil:
		b.addLane(r)
	case r.Op != nil:
		if !b.countsOnly {
			b.addOp(r.Op, b.offset(r.Time))
		}
	case r.Write != nil:
		b.addWrite(index, r.Write, b.offset(r.Time))
	case r.Gap != nil:
		b.gaps = append(b.gaps, r.Gap.Source+": "+r.Gap.Reason)
	}
}

func (b *Builder) offset(t time.Time) time.Duration {
	return max(0, t.Sub(b.start)).Truncate(resolution)
}

func (b *Builder) lane(name string) *laneState {
	l := b.lanes[name]
	if l == nil {
		l = &laneState{Lane: Lane{Name: name}}
		b.lanes[name] = l
	}
	return l
}

// addLane begins a lane or its next generation, which has nodes of its own, so
// that the faults of the last one are over.
func (b *Builder) addLane(r *history.Record) {
	name := r.Lane.Name
	b.byNamespace[r.Lane.Namespace] = name
	b.byNetwork[networkOf(r.Lane)] = name
	l := b.lane(name)
	l.closeBands(b.offset(r.Time), func(Band) bool { return true })
}

func networkOf(l *history.Lane) danm.NetworkRef {
	ref := danm.NetworkRef{Kind: danm.NetworkKind(l.NetworkKind), Namespace: l.Namespace, Name: l.Network}
	if !ref.Kind.IsNamespaced() {
		ref.Namespace = ""
	}
	return ref
}

func (b *Builder) addOp(o *history.Op, at time.Duration) {
	l := b.lane(cmp.Or(o.Lane, o.Process))
	switch {
	case o.Type == history.Invoke:
		l.Steps = append(l.Steps, Step{at, stepText(o)})
		if o.Fault {
			l.open = append(l.open, len(l.Bands))
			l.Bands = append(l.Bands, Band{From: at, Until: -1, Lane: l.Name, Fault: o.F, Target: o.Target, Iteration: o.Iteration})
		}
		return
	case strings.HasPrefix(o.Note, "skipped: "):
		b.skipped[o.F+": "+strings.TrimPrefix(o.Note, "skipped: ")] = true
	}
	l.closeBands(at, func(band Band) bool {
		if band.Fault == o.F {
			return band.Target == o.Target && !isLasting(o.F)
		}
		return isHealing(o.F) && band.Target == o.Target && o.Type == history.OK
	})
}

// closeBands ends the open bands that match.
func (l *laneState) closeBands(at time.Duration, matches func(Band) bool) {
	l.open = slices.DeleteFunc(l.open, func(i int) bool {
		if !matches(l.Bands[i]) {
			return false
		}
		l.Bands[i].Until = at
		return true
	})
}

// Verbs of faults that go on until another verb heals them; every other fault
// is over when it is done.
var (
	lastingVerbs = []string{"fail", "pause", "stop", "partition"}
	healingVerbs = []string{"restore", "replace", "resume", "start", "heal"}
)

func isLasting(verb string) bool { return beginsWith(verb, lastingVerbs) }

func isHealing(verb string) bool { return beginsWith(verb, healingVerbs) }

func beginsWith(verb string, words []string) bool {
	first, _, _ := strings.Cut(verb, "-")
	return slices.Contains(words, first)
}

func stepText(o *history.Op) string {
	text := o.F
	if o.Target != "" {
		text += " " + o.Target
	}
	return text
}

func (b *Builder) addWrite(index int, w *history.Write, at time.Duration) {
	kind, isNetwork := danm.NetworkKindOf(w.Resource)
	switch {
	case w.Resource == "pods":
		b.addObject(w, b.pods, at, func(c *Counts) *int { return &c.Pods })
	case w.Resource == danm.EndpointResource:
		b.addObject(w, b.endpoints, at, func(c *Counts) *int { return &c.Endpoints })
	case isNetwork:
		b.addNetwork(index, w, danm.NetworkRef{Kind: kind, Namespace: w.Namespace, Name: w.Name}, at)
	}
}

// addObject counts an object that begins or ends to exist in a lane.
func (b *Builder) addObject(w *history.Write, existing map[string]string, at time.Duration, of func(*Counts) *int) {
	lane, exists := existing[w.UID]
	switch {
	case w.Type == history.Deleted && exists:
		delete(existing, w.UID)
		b.count(lane, at, of, -1)
	case w.Type != history.Deleted && !exists:
		if lane, ok := b.byNamespace[w.Namespace]; ok {
			existing[w.UID] = lane
			b.count(lane, at, of, 1)
		}
	}
}

// count changes one number of a lane and of all lanes together.
func (b *Builder) count(lane string, at time.Duration, of func(*Counts) *int, by int) {
	for _, l := range []*laneState{b.lane(lane), &b.all} {
		*of(&l.now) += by
		if b.countsOnly {
			continue
		}
		l.Pods.set(at, l.now.Pods)
		l.Endpoints.set(at, l.now.Endpoints)
		l.Bits.set(at, l.now.Bits)
	}
}

func (b *Builder) addNetwork(index int, w *history.Write, ref danm.NetworkRef, at time.Duration) {
	before, after := b.networks[ref], allocated(w, ref.Kind)
	if !b.countsOnly {
		b.noteFlips(index, ref, before, after)
	}
	b.networks[ref] = after
	if lane, ok := b.byNetwork[ref]; ok {
		b.count(lane, at, func(c *Counts) *int { return &c.Bits }, len(after)-len(before))
	}
}

// noteFlips notes every bit that a write changed.
func (b *Builder) noteFlips(index int, ref danm.NetworkRef, before, after map[netip.Addr]bool) {
	for addr := range before {
		if !after[addr] {
			b.flips[holding{ref, addr}] = append(b.flips[holding{ref, addr}], flip{false, index})
		}
	}
	for addr := range after {
		if !before[addr] {
			b.flips[holding{ref, addr}] = append(b.flips[holding{ref, addr}], flip{true, index})
		}
	}
}

// allocated returns the addresses that the network hands out and that are
// taken. Nothing is taken of a network that is gone or cannot be read.
func allocated(w *history.Write, kind danm.NetworkKind) map[netip.Addr]bool {
	taken := map[netip.Addr]bool{}
	if w.Type == history.Deleted {
		return taken
	}
	var object danm.Network
	if err := json.Unmarshal(w.Object, &object); err != nil {
		return taken
	}
	object.Kind, object.Namespace, object.Name = string(kind), w.Namespace, w.Name
	for _, spec := range object.Pools() {
		pool, err := ipam.Open(ipam.Spec(spec.Fields))
		if err != nil {
			continue
		}
		for _, i := range pool.Allocated() {
			taken[pool.Addr(i)] = true
		}
	}
	return taken
}

// Build returns the timeline up to the last record. The builder can go on.
func (b *Builder) Build() *Timeline {
	i := b.index()
	t := &Timeline{
		Start: b.start, Span: b.offset(b.last), All: b.all.Lane, Releases: i.releases(),
		Skipped: slices.Sorted(maps.Keys(b.skipped)), Gaps: slices.Clone(b.gaps), Requests: map[string]int{},
	}
	t.All.Name = ""
	for _, name := range slices.Sorted(maps.Keys(b.lanes)) {
		l := b.lanes[name].Lane
		l.Bands = slices.Clone(l.Bands)
		for k := range l.Bands {
			if l.Bands[k].Until < 0 {
				l.Bands[k].Until = t.Span
			}
		}
		t.All.Bands = append(t.All.Bands, l.Bands...)
		t.Lanes = append(t.Lanes, l)
	}
	slices.SortStableFunc(t.All.Bands, func(a, b Band) int { return cmp.Compare(a.From, b.From) })
	i.countRequests(t)
	return t
}
