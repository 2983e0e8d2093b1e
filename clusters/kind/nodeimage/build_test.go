package nodeimage

import (
	"os"
	"testing"

	"github.com/danm-chaos/danm-chaos/clusters/kind/engine"
)

// integration is set where there is an engine whose images and containers a
// test may change.
const integration = "DANM_KIND_TEST"

func TestTheNodeImageIsBuiltOrFound(t *testing.T) {
	if os.Getenv(integration) == "" {
		t.Skipf("needs a container engine and some minutes; set %s=1", integration)
	}
	version, err := engine.Run(t.Context(), "info", "--format", "{{.CgroupVersion}}")
	if err != nil {
		t.Skipf("there is no container engine: %v", err)
	}
	options := Options{CgroupV1: version == "1", Progress: os.Stderr}
	image, err := Obtain(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	if plan := Find(t.Context(), options); plan.Image != image || !plan.IsThere {
		t.Errorf("made %s, but find %+v", image, plan)
	}
}
