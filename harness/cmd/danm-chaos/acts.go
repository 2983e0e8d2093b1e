package main

import (
	"slices"

	"github.com/danm-chaos/danm-chaos/harness/schedule"
)

// Why acts are left out.
const (
	noMesh        = "Chaos Mesh is not installed"
	noCleanerPods = "the cleaner does not run in pods"
)

// leavingOut leaves acts out of the scenario, and reports them.
func (p plan) leavingOut(unwanted func(schedule.Act) bool, why string) plan {
	p.skipped = slices.Clone(p.skipped)
	for _, act := range p.scenario.Faults.Acts() {
		if unwanted(act) {
			p.skipped = append(p.skipped, string(act)+": "+why)
		}
	}
	p.scenario.Faults = p.scenario.Faults.Without(unwanted)
	return p
}

// onOwnCluster makes the plan fit a cluster that we start: it has no Chaos Mesh,
// and pods of the cleaner only where that is deployed. A scenario that is about
// nothing else is refused.
func (p plan) onOwnCluster() (plan, error) {
	wanted := len(p.scenario.Faults.Acts())
	if p.cluster == existingCluster || wanted == 0 {
		return p, nil
	}
	p = p.leavingOut(schedule.Act.IsOfMesh, noMesh)
	if !p.deploysCleaner() {
		p = p.leavingOut(schedule.Act.IsOnCleaner, noCleanerPods)
	}
	if len(p.scenario.Faults.Acts()) == 0 {
		return p, usagef("scenario %s: it needs a cleaner in pods, or Chaos Mesh: use --cluster %s with --cleaner %s, or --cluster %s", p.scenario.Name, kindCluster, defaultCleaner, existingCluster)
	}
	return p, nil
}
