package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/danm-chaos/danm-chaos/harness/canary"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
	"github.com/danm-chaos/danm-chaos/scenarios"
)

// entry is one thing that can be named on a command line.
type entry struct {
	Name        string `json:"name"`
	Description string `json:"description"`
}

// catalogue is what `list --json` prints.
type catalogue struct {
	Scenarios []entry `json:"scenarios"`
	Faults    []entry `json:"faults"`
	SimFaults []entry `json:"simulatedFaults"`
	Clusters  []entry `json:"clusters"`
	Cleaners  []entry `json:"cleaners"`
	Canaries  []entry `json:"canaries"`
}

func newCatalogue() catalogue {
	c := catalogue{
		Faults: []entry{
			{string(schedule.FailNode), "silence a node: power loss, or on kind a hang, a cut wire, no kubelet"},
			{string(schedule.RestoreNode), "undo that"},
			{string(schedule.ReplaceNode), "remove a failed node for good and add a fresh one"},
			{string(schedule.ForceDelete), "delete pods with grace period 0"},
			{string(schedule.Evict), "evict pods, as a drain does"},
			{string(schedule.Drain), "cordon a node and evict the lane's pods on it"},
			{string(schedule.Scale), "take replicas away and give them back"},
			{string(schedule.TaintNode), "declare a dead node out of service"},
			{string(schedule.KillCleaner), "delete the leading pod of the cleaner"},
			{string(schedule.MeshInject), "have Chaos Mesh break pods of the workload or the cleaner"},
		},
		Clusters: []entry{
			{defaultCluster, "real etcd and Kubernetes programs on loopback, hollow nodes"},
			{existingCluster, "a cluster that others made, with DANM and a cleaner in it; it is given back as it was"},
			{kindCluster, "real nodes as containers: kubelet, containerd, CNI plugin"},
			{simCluster, "everything but the cleaner is simulated, in virtual time; one seed is one run"},
		},
		Cleaners: []entry{
			{"fixed", "danm-cleaner of this project, as a process of its own; on kind by its manifests, in two pods"},
			{deployedCleaner, "the cleaner that an existing cluster has"},
			{"canary:NAME", "a cleaner that is known to be wrong"},
			{"exec:COMMAND", "any program; " + kubeconfigPlace + " becomes the path of a kubeconfig"},
		},
	}
	kinds := schedule.SimFaultKinds()
	slices.Sort(kinds)
	for _, kind := range kinds {
		c.SimFaults = append(c.SimFaults, entry{string(kind), kind.Describe()})
	}
	for _, s := range scenarios.All() {
		c.Scenarios = append(c.Scenarios, entry{s.Name, s.Description})
	}
	for _, name := range canary.Names() {
		c.Canaries = append(c.Canaries, entry{name, canary.Defect(name)})
	}
	return c
}

func (a *app) listCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List scenarios, faults, clusters, cleaners and canaries",
		Args:  takes(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			all := newCatalogue()
			if asJSON {
				return a.printJSON(all)
			}
			return a.printCatalogue(all)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func (a *app) printJSON(v any) error {
	e := json.NewEncoder(a.stdout)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func (a *app) printCatalogue(all catalogue) error {
	out := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	for _, part := range []struct {
		title   string
		entries []entry
	}{
		{"scenarios", all.Scenarios}, {"faults", all.Faults}, {"faults of the simulator", all.SimFaults}, {"clusters", all.Clusters},
		{"cleaners", all.Cleaners}, {"canaries", all.Canaries},
	} {
		fmt.Fprintf(out, "%s:\n", part.title)
		for _, e := range part.entries {
			fmt.Fprintf(out, "  %s\t%s\n", e.Name, e.Description)
		}
	}
	return out.Flush()
}
