package kind

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

// Labels by which things of the engine are known to be ours, or a cluster's.
const (
	kindClusterLabel = "io.x-k8s.kind.cluster"
	runLabel         = "danm-chaos.run"
)

// nameMax leaves room for "-control-plane" in the name of a host.
const nameMax = 40

var notInName = regexp.MustCompile(`[^a-z0-9]+`)

// clusterName makes a name for cluster, network and nodes of a run's ID. Other
// IDs make other names, also where letters have to go: then a sum is added.
func clusterName(runID string) string {
	readable := strings.Trim(notInName.ReplaceAllString(strings.ToLower(runID), "-"), "-")
	name := "danm-chaos-" + readable
	if readable == runID && len(name) <= nameMax {
		return name
	}
	sum := sha256.Sum256([]byte(runID))
	short := strings.TrimRight(name[:min(len(name), nameMax-9)], "-")
	return short + "-" + hex.EncodeToString(sum[:])[:8]
}
