package timeline

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/harness/history"
)

// Bounds of one story. What is further from the violation explains less.
const (
	eventsBefore = 24
	eventsAfter  = 6
)

// Story is one violation, told from the history.
type Story struct {
	At      time.Duration // of what broke it
	Events  []Event
	Change  *Change // the write that broke it; nil if no write did
	Strip   *Strip  // nil if no address is involved
	Missing string  // why there is nothing to tell
}

// Event is one thing that somebody did.
type Event struct {
	At     time.Duration
	Time   time.Time
	Actor  string // user, lane or node
	Text   string
	RV     uint64
	Record uint64
	Breaks bool // this is what the violation is about
}

// Stories tells violations in the order given.
func (b *Builder) Stories(violations []check.Violation) []Story {
	i := b.index()
	stories := make([]Story, len(violations))
	for k, v := range violations {
		stories[k] = i.story(v)
	}
	return stories
}

func (i *index) story(v check.Violation) Story {
	breaking := i.indexOf(v.Record)
	s := Story{}
	if breaking < 0 {
		s.Missing = "the history does not have the record that this is about"
	} else {
		s.At = i.offset(i.timeOf(breaking))
	}
	s.Events = around(i.events(v, breaking))
	s.Change = i.change(breaking)
	s.Strip = i.strip(v, s.Events)
	return s
}

// indexOf finds the record of that number, -1 if there is none.
func (i *index) indexOf(number uint64) int {
	k, ok := slices.BinarySearchFunc(i.records, number, func(r history.Record, n uint64) int { return cmp.Compare(r.N, n) })
	if !ok {
		return -1
	}
	return k
}

func (i *index) timeOf(k int) time.Time {
	if at, ok := i.times[k]; ok {
		return at
	}
	return i.records[k].Time
}

// around keeps the events next to the one that broke something.
func around(events []Event) []Event {
	at := slices.IndexFunc(events, func(e Event) bool { return e.Breaks })
	if at < 0 {
		at = len(events) - 1
	}
	return events[max(0, at-eventsBefore):min(len(events), at+eventsAfter+1)]
}

// events gathers what happened to the pod's name, its endpoints, the address
// and the lane, in order of time.
func (i *index) events(v check.Violation, breaking int) []Event {
	t := teller{index: i, breaking: breaking}
	namespace, pod, _ := strings.Cut(v.Pod, "/")
	if pod != "" {
		t.tellPod(namespace, pod)
		t.tellEndpointsOf(namespace, pod)
		t.tellLives(namespace, pod)
	}
	if key, ok := holdingOf(v); ok {
		t.tellBit(key)
		t.tellClaims(key)
	}
	if v.Lane != "" {
		t.tellLane(v.Lane)
	}
	if breaking >= 0 && !t.told[breaking] {
		t.tellOther(breaking)
	}
	slices.SortStableFunc(t.events, func(a, b Event) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.RV, b.RV), cmp.Compare(a.Record, b.Record))
	})
	return t.events
}

// holdingOf returns the address that a violation is about.
func holdingOf(v check.Violation) (holding, bool) {
	addr, ok, err := danm.ParseAddress(v.Address)
	kind, name, hasKind := strings.Cut(v.Network, " ")
	if err != nil || !ok || !hasKind {
		return holding{}, false
	}
	ref := danm.NetworkRef{Kind: danm.NetworkKind(kind), Name: name}
	if namespace, short, ok := strings.Cut(name, "/"); ok {
		ref.Namespace, ref.Name = namespace, short
	}
	return holding{ref, addr}, true
}

// teller collects the events of one story, each record once.
type teller struct {
	*index
	breaking int
	told     map[int]bool
	events   []Event
}

func (t *teller) tell(k int, actor, text string) {
	if t.told == nil {
		t.told = map[int]bool{}
	}
	if t.told[k] {
		return
	}
	t.told[k] = true
	r := &t.records[k]
	e := Event{At: t.offset(t.timeOf(k)), Time: t.timeOf(k), Actor: actor, Text: text, Record: r.N, Breaks: k == t.breaking}
	if r.Write != nil {
		e.RV = r.Write.RV
	}
	t.events = append(t.events, e)
}

// tellPod tells what happened to every pod of that name, as far as it shows in
// what the history keeps of a pod.
func (t *teller) tellPod(namespace, name string) {
	was := map[string]corev1.Pod{}
	for _, k := range t.byName[objectKey("pods", namespace, name)] {
		w := t.records[k].Write
		var pod corev1.Pod
		if err := json.Unmarshal(w.Object, &pod); err != nil {
			continue
		}
		if text := podChange(w, was[w.UID], pod); text != "" {
			t.tell(k, t.writers[k], fmt.Sprintf("pod %s (uid %s) %s", name, w.UID, text))
		}
		was[w.UID] = pod
	}
}

func podChange(w *history.Write, was, is corev1.Pod) string {
	switch {
	case w.Type == history.Deleted:
		return "deleted"
	case w.Type == history.Added:
		return "created"
	case was.DeletionTimestamp == nil && is.DeletionTimestamp != nil:
		return "marked for deletion"
	case was.Spec.NodeName == "" && is.Spec.NodeName != "":
		return "bound to node " + is.Spec.NodeName
	case isReady(was) != isReady(is):
		if isReady(is) {
			return "became Ready"
		}
		return "is no longer Ready"
	default:
		return ""
	}
}

func isReady(pod corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// tellEndpointsOf tells of every endpoint that a pod of that name had.
func (t *teller) tellEndpointsOf(namespace, pod string) {
	for k, ep := range t.decoded { // in any order: the events are sorted later
		if ep.Namespace == namespace && ep.Spec.Pod == pod {
			t.tellEndpoint(k, ep)
		}
	}
}

func (t *teller) tellEndpoint(k int, ep danm.Endpoint) {
	addresses, _ := ep.Addresses()
	verb := map[history.WriteType]string{history.Added: "created", history.Modified: "changed", history.Deleted: "deleted"}
	t.tell(k, t.writers[k], fmt.Sprintf("DanmEp %s %s, of pod %s (uid %s), %s", ep.Name, verb[t.records[k].Write.Type],
		ep.Spec.Pod, ep.Spec.PodUID, joinAddresses(addresses)))
}

func joinAddresses(addresses []netip.Addr) string {
	if len(addresses) == 0 {
		return "without address"
	}
	var texts []string
	for _, a := range addresses {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, ", ")
}

func (t *teller) tellLives(namespace, pod string) {
	for _, l := range t.lives {
		if l.Namespace != namespace || l.Pod != pod {
			continue
		}
		t.tell(t.indexOf(l.record), l.Node, fmt.Sprintf("CNI ADD succeeded for %s (uid %s)", l.Pod, l.PodUID))
	}
	for k := range t.records {
		a := t.records[k].Attachment
		if a == nil || a.Namespace != namespace || a.Pod != pod {
			continue
		}
		switch a.Event {
		case history.Detaching:
			t.tell(k, a.Node, fmt.Sprintf("CNI DEL begins for %s (uid %s)", a.Pod, a.PodUID))
		case history.Lost:
			t.tell(k, a.Node, fmt.Sprintf("%s (uid %s) died with its node", a.Pod, a.PodUID))
		}
	}
}

func (t *teller) tellBit(key holding) {
	for _, f := range t.flips[key] {
		verb := "cleared"
		if f.set {
			verb = "set"
		}
		t.tell(f.record, t.writers[f.record], fmt.Sprintf("bit of %s %s in %s", key.address, verb, key.network))
	}
}

// tellClaims tells of the endpoints that had the address, whoever's they were.
func (t *teller) tellClaims(key holding) {
	for _, c := range t.claims[key] {
		for _, k := range t.versions[c.uid] {
			t.tellEndpoint(k, t.decoded[k])
		}
	}
}

// tellLane tells what the schedule did, and what was seen when it settled.
func (t *teller) tellLane(lane string) {
	for k := range t.records {
		switch r := &t.records[k]; {
		case r.Op != nil && r.Op.Lane == lane && r.Op.Type == history.Invoke:
			t.tell(k, "harness", fmt.Sprintf("iteration %d: %s", r.Op.Iteration, stepText(r.Op)))
		case r.Snapshot != nil && r.Snapshot.Lane == lane:
			s := r.Snapshot
			text := fmt.Sprintf("snapshot after iteration %d: pods=%d eps=%d bits=%d", s.Iteration, len(s.Pods), len(s.Endpoints), len(s.Bits))
			if s.Pending != "" {
				text += ", " + s.Pending
			}
			t.tell(k, "harness", text)
		}
	}
}

// tellOther tells of a record that belongs to none of the threads.
func (t *teller) tellOther(k int) {
	if w := t.records[k].Write; w != nil {
		t.tell(k, t.writers[k], fmt.Sprintf("%s %s %s", w.Resource, strings.TrimPrefix(w.Namespace+"/"+w.Name, "/"), strings.ToLower(string(w.Type))))
		return
	}
	if a := t.records[k].Audit; a != nil {
		t.tell(k, a.User, fmt.Sprintf("%s %s %s answered with %d", a.Verb, a.Resource, strings.TrimPrefix(a.Namespace+"/"+a.Name, "/"), a.Code))
	}
}
