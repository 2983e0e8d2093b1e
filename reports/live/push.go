package live

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus/push"

	"github.com/danm-chaos/danm-chaos/harness"
	"github.com/danm-chaos/danm-chaos/reports"
)

// Push sends the metrics of a finished run to a Pushgateway. Runs of the same
// scenario and cluster replace each other there.
func Push(ctx context.Context, url string, r harness.Result) error {
	job := fmt.Sprintf("danm-chaos:%s:%s", r.Scenario, r.Cluster)
	if err := push.New(url, job).Gatherer(reports.NewRegistry(r)).PushContext(ctx); err != nil {
		return fmt.Errorf("pushing metrics: %w", err)
	}
	return nil
}
