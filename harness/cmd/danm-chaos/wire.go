package main

import (
	"context"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/clusters/controlplane"
	"github.com/danm-chaos/danm-chaos/harness/history"
)

// startCluster starts the kind of cluster that the plan asks for.
func startCluster(ctx context.Context, p plan, d runDir, records history.Recorder, out io.Writer) (clusters.Cluster, error) {
	switch p.cluster {
	case kindCluster:
		return startKind(ctx, p, d, records, out)
	case existingCluster:
		return openExisting(ctx, p, d, out)
	}
	c, err := controlplane.Start(ctx, controlplane.Options{
		RunID: d.id, Group: p.group, Variant: p.variant, Seed: p.seed, Recorder: records, Progress: out, KeepLogs: d.join(logsDir),
	})
	if err != nil {
		return nil, err // not c, which would be a non-nil interface around nil
	}
	return c, nil
}

// reportedModules are those whose versions matter to whoever reads a report.
func reportedModules() []string { return []string{"k8s.io/client-go", "k8s.io/apimachinery"} }

// buildVersions returns the commit and the versions that this program was
// built from.
func buildVersions() (commit string, versions map[string]string) {
	versions = map[string]string{"go": runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown", versions
	}
	commit = "unknown"
	isModified := false
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			commit = s.Value
		case "vcs.modified":
			isModified = s.Value == "true"
		}
	}
	if isModified {
		commit += "+modified"
	}
	for _, module := range info.Deps {
		for _, reported := range reportedModules() {
			if module.Path == reported {
				versions[module.Path] = module.Version
			}
		}
	}
	return commit, versions
}
