package controlplane

import (
	"testing"

	"github.com/danm-chaos/danm-chaos/clusters/conformance"
)

func TestTheRealServerPassesTheSuiteOfAllClusters(t *testing.T) {
	needPrograms(t)
	isolate(t)
	conformance.Run(t, startCluster(t, &memoryRecorder{}))
}
