package clusters

import (
	"fmt"
	"hash/fnv"
)

// Labels and annotations of everything that a run makes in a cluster, or
// changes there for a while. They are what finds it again when the program is
// gone.
const (
	RunLabel  = "chaos.danm/run"
	LaneLabel = "chaos.danm/lane"
	// FleetLabel marks the namespace of a fleet, in which no cleaner is tested.
	FleetLabel = "chaos.danm/fleet"
	// ExpiresAnnotation holds the time, in RFC 3339, from which anybody may
	// remove the object.
	ExpiresAnnotation = "chaos.danm/expires"
)

// RunLabelValue returns the value of RunLabel for a run ID of any form.
func RunLabelValue(runID string) string {
	h := fnv.New32a()
	h.Write([]byte(runID)) // never fails
	return fmt.Sprintf("%08x", h.Sum32())
}
