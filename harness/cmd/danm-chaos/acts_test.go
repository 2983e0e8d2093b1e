package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/danm-chaos/danm-chaos/harness/schedule"
)

func TestAClusterOfOursLeavesOutWhatItCannotDoToTheCleaner(t *testing.T) {
	for _, c := range []struct {
		name             string
		scenario         string
		cluster, cleaner string
		want             []schedule.Act
		skipped          []string
		isRefused        bool
	}{
		{"kind deploys the cleaner, so its pods can be killed", "cleaner-failover", kindCluster, defaultCleaner,
			[]schedule.Act{schedule.ActKillCleaner}, []string{"mesh-cleaner-kill: " + noMesh}, false},
		{"a canary on kind has no pods, and nothing is left", "cleaner-failover", kindCluster, "canary:by-name", nil, nil, true},
		{"nor has any cleaner on the control plane", "cleaner-failover", defaultCluster, defaultCleaner, nil, nil, true},
		{"but others can still be disturbed there", "disturbance", defaultCluster, defaultCleaner,
			[]schedule.Act{schedule.ActEvict, schedule.ActDrain, schedule.ActScale}, []string{"kill-cleaner: " + noCleanerPods}, false},
		{"what an existing cluster can do is found out there", "cleaner-failover", existingCluster, deployedCleaner,
			[]schedule.Act{schedule.ActKillCleaner, schedule.MeshCleanerKill}, nil, false},
		{"nothing is done to the cleaner anyway", "node-shutdown", defaultCluster, defaultCleaner, nil, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := namedScenario(c.scenario)
			if err != nil {
				t.Fatal(err)
			}
			p, err := plan{runFlags: runFlags{cluster: c.cluster, cleaner: c.cleaner}, scenario: s}.onOwnCluster()
			if (err != nil) != c.isRefused {
				t.Fatalf("got %v, want a refusal: %v", err, c.isRefused)
			}
			if c.isRefused {
				return
			}
			if diff := cmp.Diff(c.want, p.scenario.Faults.Acts()); diff != "" {
				t.Errorf("acts (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.skipped, p.skipped); diff != "" {
				t.Errorf("skipped (-want +got):\n%s", diff)
			}
		})
	}
}
