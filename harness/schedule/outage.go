package schedule

import (
	"fmt"
	"slices"
)

// Outage says how a node fails.
type Outage string

// The outages. All but the first need a node that is more than a model.
const (
	PowerLoss Outage = "power-loss" // everything on it ends at once; what is meant if none is named
	Hang      Outage = "hang"       // nothing on it runs or ends until it goes on where it stood
	CutOff    Outage = "cut-off"    // it does not reach the API; its pods run on
	NoKubelet Outage = "no-kubelet" // its pods run on and nobody looks after them
)

// Outages lists every way in which a node fails.
func Outages() []Outage { return []Outage{PowerLoss, Hang, CutOff, NoKubelet} }

// checkOutages is for a node shutdown. A node that is not off cannot be
// replaced: its pods would run on beside those of the new one.
func (n *NodeShutdown) checkOutages() error {
	for i, o := range n.Outages {
		if !slices.Contains(Outages(), o) {
			return fmt.Errorf("faults.nodeShutdown.outages[%d]: %q is not one of %s", i, o, joined(Outages()))
		}
		if o != PowerLoss && slices.Contains(n.Returns, Never) {
			return fmt.Errorf("faults.nodeShutdown.outages[%d]: after %q a node cannot be replaced: leave %q out of returns", i, o, Never)
		}
	}
	return nil
}
