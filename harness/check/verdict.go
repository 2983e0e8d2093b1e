package check

// Verdict is the outcome of a check.
type Verdict string

// Invalid: an invariant was violated. Unknown: it could not be decided, which
// is never a pass. Valid: decided, and nothing was wrong.
const (
	Valid   Verdict = "Valid"
	Invalid Verdict = "Invalid"
	Unknown Verdict = "Unknown"
)

// Merge combines two verdicts: Invalid over Unknown over Valid. The empty
// verdict is neutral.
func Merge(a, b Verdict) Verdict {
	for _, v := range []Verdict{Invalid, Unknown, Valid} {
		if a == v || b == v {
			return v
		}
	}
	return ""
}

// Invariant names a property by its number in the design.
type Invariant string

// The invariants that this package checks.
const (
	LiveAttachment  Invariant = "I1 LiveAttachment"  // a live attachment has its endpoint and its bit
	SingleHolder    Invariant = "I2 SingleHolder"    // no address is held by two live attachments
	Convergence     Invariant = "I3 Convergence"     // settled: pods, endpoints and bits agree as sets
	ClearOnce       Invariant = "I4 ClearOnce"       // the cleaner clears a bit at most once per endpoint UID
	ReservedBits    Invariant = "I5 ReservedBits"    // reserved bits are never cleared
	OnlyAllocations Invariant = "I6 OnlyAllocations" // the cleaner changes nothing but endpoints and bitmaps
	DryRunSilent    Invariant = "I8 DryRunSilent"    // dry-run writes nothing
	FaultsFired     Invariant = "FaultsFired"        // every planned fault fired, else Unknown
	HistoryComplete Invariant = "HistoryComplete"    // no gap, every write has a writer, the end agrees with a live read, else Unknown
)

// Blame says whose write broke an invariant.
type Blame string

// Who can be to blame. Only BlameCleaner makes a run Invalid unless the
// options say any; what others broke is a finding and must still be healed.
const (
	BlameCleaner Blame = "cleaner"
	BlameCNI     Blame = "cni"
	BlameOther   Blame = "other"   // another writer, or nobody: something that should have been written was not
	BlameUnknown Blame = "unknown" // nothing recorded who wrote it, so the run cannot be Valid
)

// Violation is the evidence of one broken invariant.
type Violation struct {
	Invariant Invariant `json:"invariant"`
	Blame     Blame     `json:"blame"`
	Message   string    `json:"message"` // one sentence, complete without the other fields
	Lane      string    `json:"lane,omitempty"`
	Iteration int       `json:"iteration,omitempty"`
	Pod       string    `json:"pod,omitempty"` // namespace/name
	PodUID    string    `json:"podUid,omitempty"`
	Endpoint  string    `json:"endpoint,omitempty"` // namespace/name
	Network   string    `json:"network,omitempty"`  // "DanmNet namespace/name"
	Address   string    `json:"address,omitempty"`
	Writer    string    `json:"writer,omitempty"` // user name of the write that broke it
	RV        uint64    `json:"rv,omitempty"`     // revision of that write
	Step      string    `json:"step,omitempty"`   // the last step invoked in the lane before it
	Record    uint64    `json:"record,omitempty"` // N of that write in history.jsonl
	Evidence  []string  `json:"evidence,omitempty"`
}

// Report is the judgement of one history.
type Report struct {
	Verdict    Verdict           `json:"verdict"`
	Violations []Violation       `json:"violations"` // those that make the run Invalid
	Findings   []Violation       `json:"findings"`   // what others than the cleaner broke
	Unknowns   []string          `json:"unknowns"`   // why something could not be decided
	Unjudged   []string          `json:"unjudged"`   // what this kind of history cannot show at all
	Checked    map[Invariant]int `json:"checked"`    // how many times each was evaluated
}
