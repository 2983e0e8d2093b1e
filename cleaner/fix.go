package cleaner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/danm-chaos/danm-chaos/cleaner/audit"
)

// ErrNotFixed is returned by Fix when findings outlast every quarantine.
var ErrNotFixed = errors.New("not everything was healed")

// Paces of Fix. fixSlack covers starting up, and requests that have to be made
// again.
const (
	fixSlack   = time.Minute
	fixPollMin = time.Second
)

// Progress is how far Fix has come.
type Progress struct {
	Remaining int           // findings, and addresses whose endpoint has gone
	Left      time.Duration // until Fix gives up
}

// Fix heals the fixable findings of a report, and nothing else. It runs the
// controller itself, restricted to them, so that there is no second way to
// release: both quarantines begin anew, and an address whose lineage nobody
// followed waits for the orphan quarantine. It takes no Lease, as another
// active cleaner is safe (R9).
func Fix(ctx context.Context, cfg Config, shown audit.Report, report func(Progress)) error {
	cfg, err := cfg.withoutElection().withDefaults()
	if err != nil {
		return err
	}
	if err := refusal(shown); err != nil {
		return err
	}
	cfg.Ready, cfg.Registry = nil, nil
	cfg.scope = audit.ScopeOf(shown)
	ctx, cancel := context.WithTimeout(ctx, cfg.fixBudget())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, cfg) }()
	err = waitForFix(ctx, cfg, ended, report)
	cancel()
	return errors.Join(err, <-ended)
}

// refusal says why waiting would not help. A breaker that is open for too many
// suspects closes by itself, the others do not.
func refusal(shown audit.Report) error {
	switch {
	case !shown.Complete:
		return errors.New("not fixing: not everything could be read, so nothing may be released")
	case shown.Migration != "", shown.Pods == 0 && shown.Endpoints > 0:
		return fmt.Errorf("not fixing: %s", shown.Frozen)
	}
	return nil
}

// fixBudget is the longest that a finding may take: a completed pod's
// allowance, both quarantines and the breaker's confirmation.
func (c Config) fixBudget() time.Duration {
	return c.CompletedAllowance + c.ReleaseQuarantine + c.OrphanQuarantine + 2*massConfirmation + 4*c.sweepPeriod() + fixSlack
}

// waitForFix looks again and again until nothing of the scope remains. A look
// that could not read everything proves nothing.
func waitForFix(ctx context.Context, cfg Config, ended chan error, report func(Progress)) error {
	core, dyn, err := newClients(cfg)
	if err != nil {
		return err
	}
	ticker := cfg.Clock.NewTicker(max(cfg.sweepPeriod(), fixPollMin))
	defer ticker.Stop()
	deadline := cfg.Clock.Now().Add(cfg.fixBudget())
	for {
		w := observe(ctx, cfg, core, dyn)
		if len(w.Unread) == 0 {
			left := cfg.scope.Remaining(w, cfg.policy())
			report(Progress{Remaining: left, Left: deadline.Sub(cfg.Clock.Now())})
			if left == 0 {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("fixing: %w", errors.Join(ErrNotFixed, context.Cause(ctx)))
		case err := <-ended:
			ended <- nil // for the caller, who waits for it too
			return fmt.Errorf("fixing: the controller ended: %w", errors.Join(ErrNotFixed, err))
		case <-ticker.C():
		}
	}
}
