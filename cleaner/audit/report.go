package audit

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

// SchemaVersion is the version of the JSON form of Report and Explanation. It
// grows when a field changes its meaning or goes, not when one is added.
const SchemaVersion = 1

// Kind names what was found.
type Kind string

// The kinds of finding, by severity.
const (
	LeakedEndpoint Kind = "LeakedEndpoint" // the owner is gone
	OrphanBit      Kind = "OrphanBit"      // allocated, and no endpoint has it
	MissingBit     Kind = "MissingBit"     // a living pod's address is marked free

	DuplicateAddress Kind = "DuplicateAddress" // several living pods hold it, and no ReservedIP lets them
	DoubleInterface  Kind = "DoubleInterface"  // a pod has two endpoints for one interface
	NoNetwork        Kind = "NoNetwork"        // a living pod's network does not exist
	MalformedObject  Kind = "MalformedObject"  // cannot be understood, left alone

	Held           Kind = "Held"           // ownerless, and there is a reason not to release it
	SharedAddress  Kind = "SharedAddress"  // several living pods hold it, and a ReservedIP lets them
	ForeignAddress Kind = "ForeignAddress" // no bitmap of DANM's covers it
	OutsidePool    Kind = "OutsidePool"    // static IPv6 in net6, but not in the pool: has no bit
	StaticBit      Kind = "StaticBit"      // allocated outside the dynamic pool, and no endpoint has it
	LegacyEndpoint Kind = "LegacyEndpoint" // carries no PodUID, judged by name and age
)

// Severity says what a finding asks for.
type Severity string

// Fixable findings are healed by the controller, for others somebody must do
// something, and a note only explains the figures.
const (
	Fixable   Severity = "fixable"
	Attention Severity = "attention"
	Note      Severity = "note"
)

// Severity returns what findings of the kind ask for.
func (k Kind) Severity() Severity {
	switch k {
	case LeakedEndpoint, OrphanBit, MissingBit:
		return Fixable
	case DuplicateAddress, DoubleInterface, NoNetwork, MalformedObject:
		return Attention
	}
	return Note
}

// Finding is one thing worth saying.
type Finding struct {
	Kind        Kind             `json:"kind"`
	Severity    Severity         `json:"severity"`
	Network     *danm.NetworkRef `json:"network,omitempty"`
	NetworkUID  types.UID        `json:"networkUID,omitempty"`
	Family      danm.Family      `json:"family,omitempty"`
	Address     string           `json:"address,omitempty"` // several are separated by ", "
	Endpoint    string           `json:"endpoint,omitempty"`
	EndpointUID types.UID        `json:"endpointUID,omitempty"`
	Pod         string           `json:"pod,omitempty"`
	PodUID      types.UID        `json:"podUID,omitempty"`
	Host        string           `json:"host,omitempty"`
	Reason      string           `json:"reason,omitempty"`
	Detail      string           `json:"detail"`
	// Count is how many addresses or endpoints the finding stands for.
	Count int `json:"count"`
}

// key tells whether two looks found the same thing.
func (f Finding) key() [5]string {
	network := ""
	if f.Network != nil {
		network = f.Network.String()
	}
	return [5]string{string(f.Kind), network + string(f.NetworkUID), f.Address, f.Endpoint + string(f.EndpointUID), f.Pod}
}

// Row is one family of one network.
type Row struct {
	Network danm.NetworkRef `json:"network"`
	Family  danm.Family     `json:"family"`
	CIDR    string          `json:"cidr"`
	// Size counts the addresses that a pod may have: neither the first nor the
	// last, nor a gateway. InUse are those allocated, Free the others.
	Size        int `json:"size"`
	InUse       int `json:"inUse"`
	Free        int `json:"free"`
	FreeDynamic int `json:"freeDynamic"` // free in the dynamic pool
	ReservedIPs int `json:"reservedIPs"` // allocated for a ReservedIP, without endpoint

	LeakedEndpoints int `json:"leakedEndpoints"`
	OrphanBits      int `json:"orphanBits"`
	MissingBits     int `json:"missingBits"`
	Duplicates      int `json:"duplicates"`
	Held            int `json:"held"`
}

// Allocation is one address and who has it.
type Allocation struct {
	Network   danm.NetworkRef `json:"network"`
	Address   string          `json:"address"` // empty for an interface without
	Endpoint  string          `json:"endpoint,omitempty"`
	Interface string          `json:"interface,omitempty"`
	Pod       string          `json:"pod,omitempty"`
	PodUID    types.UID       `json:"podUID,omitempty"`
	Node      string          `json:"node,omitempty"`
	State     string          `json:"state"`
}

// Report is the outcome of an audit.
type Report struct {
	SchemaVersion int        `json:"schemaVersion"`
	Time          time.Time  `json:"time"`
	Group         danm.Group `json:"group"`
	// Complete is false when a list failed. Then nothing is consistent.
	Complete   bool     `json:"complete"`
	Consistent bool     `json:"consistent"`
	Unread     []Unread `json:"unread,omitempty"`
	// Frozen says why the controller would release nothing at present.
	Frozen string `json:"frozen,omitempty"`
	// Migration says that the other API group holds endpoints; then no copy of an
	// endpoint or a bitmap can be trusted.
	Migration string `json:"migration,omitempty"`
	Pods      int    `json:"pods"`
	Endpoints int    `json:"endpoints"`

	Networks    []Row        `json:"networks"`
	Findings    []Finding    `json:"findings"`
	Allocations []Allocation `json:"allocations,omitempty"`
}

// Freeze notes why the controller would release nothing at present.
func (r *Report) Freeze(why string) {
	r.Frozen = why
	r.conclude()
}

// Confirm drops what an earlier look did not find: a bit between the two
// writes of an ADD, an endpoint whose CNI DEL was under way. Notes stay.
func (r *Report) Confirm(earlier Report) {
	seen := map[[5]string]bool{}
	for _, f := range earlier.Findings {
		seen[f.key()] = true
	}
	r.Findings = slices.DeleteFunc(r.Findings, func(f Finding) bool { return f.Severity != Note && !seen[f.key()] })
	r.conclude()
}

// With returns the findings of a severity.
func (r *Report) With(s Severity) []Finding {
	var out []Finding
	for _, f := range r.Findings {
		if f.Severity == s {
			out = append(out, f)
		}
	}
	return out
}

// conclude derives what follows from the findings.
func (r *Report) conclude() {
	slices.SortStableFunc(r.Findings, compareFindings)
	r.Complete = len(r.Unread) == 0
	r.Consistent = r.Complete && r.Frozen == "" && len(r.With(Fixable)) == 0 && len(r.With(Attention)) == 0
	for i := range r.Networks {
		r.Networks[i].count(r.Findings)
	}
}

func compareFindings(a, b Finding) int {
	return cmp.Or(cmp.Compare(rank(a.Severity), rank(b.Severity)), cmp.Compare(a.Kind, b.Kind))
}

func rank(s Severity) int { return slices.Index([]Severity{Fixable, Attention, Note}, s) }

// count takes a row's share of the findings. An endpoint with two addresses
// counts in both families.
func (row *Row) count(findings []Finding) {
	row.LeakedEndpoints, row.OrphanBits, row.MissingBits, row.Duplicates, row.Held = 0, 0, 0, 0, 0
	for _, f := range findings {
		if f.Network == nil || *f.Network != row.Network || f.Family != 0 && f.Family != row.Family {
			continue
		}
		switch f.Kind {
		case LeakedEndpoint:
			row.LeakedEndpoints += f.Count
		case OrphanBit:
			row.OrphanBits += f.Count
		case MissingBit:
			row.MissingBits += f.Count
		case DuplicateAddress:
			row.Duplicates += f.Count
		case Held:
			row.Held += f.Count
		}
	}
}
