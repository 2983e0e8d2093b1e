package check

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/harness/history"
)

// once files a violation of a kind that repeats itself, such as a cleaner that
// writes back a whole network every time. The first is told, the others are
// counted in its evidence.
type once struct {
	j     *judge
	order []string
	first map[string]Violation
	more  map[string]int
}

func (j *judge) newOnce() *once {
	return &once{j: j, first: map[string]Violation{}, more: map[string]int{}}
}

func (o *once) add(key string, v Violation) {
	if _, ok := o.first[key]; ok {
		o.more[key]++
		return
	}
	o.order = append(o.order, key)
	o.first[key] = v
}

func (o *once) file() {
	for _, key := range o.order {
		v := o.first[key]
		if more := o.more[key]; more > 0 {
			v.Evidence = append(v.Evidence, fmt.Sprintf("and %d more of this kind", more))
		}
		o.j.accuse(v)
	}
}

// checkEdits judges every write of the cleaner to a network.
func (j *judge) checkEdits() {
	clears := map[claim]*write{}
	changes := j.newOnce()
	for i := range j.model.edits {
		e := &j.model.edits[i]
		j.checkClearOnce(e, clears)
		j.checkReserved(e)
		j.checkOnlyAllocations(e, changes)
	}
	changes.file()
}

// claim is an endpoint's right to be released, once for each family.
type claim struct {
	uid    string
	family danm.Family
}

// checkClearOnce holds a clear against the endpoint that the address belonged
// to. Bits that no endpoint ever claimed do not count: only a sweep can
// release those. A repair in between is no excuse.
func (j *judge) checkClearOnce(e *edit, clears map[claim]*write) {
	for _, c := range e.cleared {
		if c.claimant == "" {
			continue
		}
		j.count(ClearOnce)
		key := claim{c.claimant, danm.FamilyOf(c.address)}
		first, again := clears[key]
		if !again {
			clears[key] = e.write
			continue
		}
		j.accuse(j.clearedTwice(e, c, first))
	}
}

func (j *judge) clearedTwice(e *edit, c clearedBit, first *write) Violation {
	owner := j.model.endpoints[c.claimant]
	v := Violation{
		Invariant: ClearOnce, Blame: BlameCleaner, Pod: owner.namespace + "/" + owner.pod, PodUID: owner.podUID,
		Endpoint: owner.namespace + "/" + owner.name, Network: e.network.String(), Address: c.address.String(),
		Message: fmt.Sprintf("%s cleared %s of %s (rv %d) for %s (uid %s) although it had released it before (rv %d)",
			userOf(e.write), c.address, e.network, e.RV, owner, owner.uid, first.RV),
	}
	scenes := append(endpointScenes(owner), j.bitScenes(owner, c.address)...)
	v.Evidence = tell(scenes)
	return j.by(v, e.write)
}

func (j *judge) checkReserved(e *edit) {
	j.count(ReservedBits)
	if e.Type == history.Deleted {
		return // worse than a cleared bit, and reported as such
	}
	for _, r := range e.reserved {
		v := Violation{
			Invariant: ReservedBits, Blame: BlameCleaner, Network: e.network.String(), Address: addressIn(r.bit),
			Message: fmt.Sprintf("%s cleared %s of %s (rv %d), which is reserved: %s", userOf(e.write), r.bit, e.network, e.RV, r.reason),
		}
		j.accuse(j.by(v, e.write))
	}
}

func addressIn(bit string) string {
	if _, err := netip.ParseAddr(bit); err != nil {
		return ""
	}
	return bit
}

func (j *judge) checkOnlyAllocations(e *edit, changes *once) {
	j.count(OnlyAllocations)
	v := Violation{Invariant: OnlyAllocations, Blame: BlameCleaner, Network: e.network.String()}
	what := ""
	switch {
	case e.Type == history.Deleted:
		return // the request for it is reported
	case e.Type == history.Added:
		what = "added"
		v.Message = fmt.Sprintf("%s created %s (rv %d)", userOf(e.write), e.network, e.RV)
	case e.malformed != nil:
		what = "malformed"
		v.Message = fmt.Sprintf("%s left %s unreadable (rv %d): %v", userOf(e.write), e.network, e.RV, e.malformed)
	case e.isAllocation:
		return
	default:
		paths := changedPaths(e.before, e.after)
		if len(paths) == 0 {
			return
		}
		what = strings.Join(paths, ", ")
		v.Message = fmt.Sprintf("%s changed %s of %s (rv %d)", userOf(e.write), what, e.network, e.RV)
	}
	changes.add(e.network.String()+" "+what, j.by(v, e.write))
}

// allocationPaths are what the cleaner may change and what every write does.
var allocationPaths = []string{
	"spec.Options.alloc", "spec.Options.alloc6",
	"metadata.resourceVersion", "metadata.generation", "metadata.managedFields",
}

// changedPaths lists the fields in which two versions of an object differ,
// sorted, without those that may.
func changedPaths(before, after json.RawMessage) []string {
	var a, b any
	if json.Unmarshal(before, &a) != nil || json.Unmarshal(after, &b) != nil {
		return []string{"the whole object"}
	}
	return appendChanges(nil, "", a, b)
}

func appendChanges(paths []string, path string, a, b any) []string {
	if slices.Contains(allocationPaths, path) || reflect.DeepEqual(a, b) {
		return paths
	}
	left, leftIsMap := a.(map[string]any)
	right, rightIsMap := b.(map[string]any)
	if !leftIsMap || !rightIsMap {
		return append(paths, path)
	}
	keys := maps.Clone(left)
	maps.Copy(keys, right)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		below := strings.TrimPrefix(path+"."+key, ".")
		paths = appendChanges(paths, below, left[key], right[key])
	}
	return paths
}

// checkCleanerRequests finds requests that a cleaner has no business to make,
// and in a dry run any that would write.
func (j *judge) checkCleanerRequests() {
	foreign, loud := j.newOnce(), j.newOnce()
	for _, r := range j.requests.all {
		if r.User != j.run.CleanerUser || r.User == "" {
			continue
		}
		j.count(OnlyAllocations)
		if j.run.DryRun {
			j.count(DryRunSilent)
		}
		if !isSuccess(r.Audit) {
			continue
		}
		kind := r.Verb + " " + r.Resource + "/" + r.Subresource
		if !isForCleaner(r.Audit) {
			foreign.add(kind, j.request(OnlyAllocations, r, "which is none of a cleaner's business"))
		}
		if j.run.DryRun && isDanmGroup(r.Audit) {
			loud.add(kind, j.request(DryRunSilent, r, "in a dry run"))
		}
	}
	foreign.file()
	loud.file()
}

func (j *judge) request(i Invariant, r *request, why string) Violation {
	v := Violation{
		Invariant: i, Blame: BlameCleaner, Writer: r.User, RV: r.RV, Record: r.record,
		Message: fmt.Sprintf("%s succeeded (record %d), %s", describe(r.Audit), r.record, why),
	}
	if kind, ok := danm.NetworkKindOf(r.Resource); ok {
		v.Network = danm.NetworkRef{Kind: kind, Namespace: r.Namespace, Name: r.Name}.String()
	}
	v.Lane = j.lanes.find("", r.Namespace, v.Network)
	return j.at(v, orForever(r.End))
}

// isForCleaner tells whether a request is one that a cleaner may make: bits,
// endpoints, its lease and its events. Reviews write nothing.
func isForCleaner(a *history.Audit) bool {
	if _, isNetwork := danm.NetworkKindOf(a.Resource); isNetwork {
		return a.Verb == "patch" || a.Verb == "update"
	}
	switch a.Resource {
	case danm.EndpointResource:
		return a.Verb == "delete"
	case "leases", "events":
		return true
	}
	return a.Group == "authentication.k8s.io" || a.Group == "authorization.k8s.io"
}
