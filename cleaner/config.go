package cleaner

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/danm-chaos/danm-chaos/cleaner/audit"
	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ownership"
)

// Defaults of Config. ADD writes the bit before the endpoint, so the orphan
// quarantine must exceed the longest ADD: RunPodSandbox 4 min + DANM 30 s.
const (
	DefaultReleaseQuarantine  = time.Minute
	DefaultOrphanQuarantine   = 5 * time.Minute
	DefaultCompletedAllowance = 2 * time.Minute
	DefaultQPS                = 500
	DefaultBurst              = 1000
	DefaultWorkers            = 16
	DefaultLeaseNamespace     = "kube-system"
	// A standby looks every 2 to 4.4 seconds, so it takes over at most 19 seconds
	// after the leader's node died. Two active cleaners are safe, so nothing is
	// lost if a leader gives up early.
	DefaultLeaseDuration = 10 * time.Second
	DefaultRenewDeadline = 7 * time.Second
	DefaultRetryPeriod   = 2 * time.Second
)

// LeaseName is the name of the Lease that cleaners elect their leader by.
const LeaseName = "danm-cleaner"

// Config says what to clean and how carefully. The zero value of every field
// but REST means its default.
type Config struct {
	// REST is the cluster. Run works with copies, with a pace and a content type
	// of its own. The user agent, if any, is the program's.
	REST *rest.Config
	// Encoding is one in which answers may come besides Kubernetes' own, which
	// the clients then ask for first; nil is none. An API server in the same
	// process spares both sides the bytes by it.
	Encoding *runtime.SerializerInfo
	// Group is the DANM API group to work on; empty finds out which one the
	// cluster serves.
	Group danm.Group
	// ReleaseQuarantine is how long an endpoint must stay a suspect.
	ReleaseQuarantine time.Duration
	// OrphanQuarantine is how long a set bit must go without endpoint.
	OrphanQuarantine time.Duration
	// CompletedAllowance is how long CNI DEL may take after a pod completed.
	CompletedAllowance time.Duration
	// Fencing says whether a force-deleted pod counts as gone while its node
	// is silent.
	Fencing ownership.Fencing
	// DryRun computes and logs everything and writes nothing: no release, no
	// Event, no Lease.
	DryRun bool
	// LeaderElect makes replicas take turns. Two active cleaners are safe;
	// the Lease only saves work.
	LeaderElect    bool
	LeaseNamespace string
	LeaseDuration  time.Duration
	RenewDeadline  time.Duration
	RetryPeriod    time.Duration
	// Identity tells replicas apart; required with LeaderElect.
	Identity string
	Workers  int
	QPS      float32
	Burst    int
	// Registry takes the metrics; nil registers none.
	Registry prometheus.Registerer
	// ReleaseLog takes one Record as a line of JSON per release; nil keeps none.
	// Each record is one call of Write.
	ReleaseLog io.Writer
	Logger     logr.Logger
	Clock      clock.WithTicker
	// Ready is called when this replica works with synced caches, and also when
	// it stands by for the Lease, as a rollout waits for either. It may be
	// called more than once; nil is allowed.
	Ready func()
	// scope restricts the controller to what somebody agreed to; nil is
	// everything. See Fix.
	scope *audit.Scope
}

// withDefaults returns the config with every default filled in, or an error
// that names the field.
func (c Config) withDefaults() (Config, error) {
	if c.REST == nil {
		return c, errors.New("cleaner config: REST is required")
	}
	if c.LeaderElect && c.Identity == "" {
		return c, errors.New("cleaner config: Identity is required with LeaderElect")
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		unset time.Duration
	}{
		{"ReleaseQuarantine", &c.ReleaseQuarantine, DefaultReleaseQuarantine},
		{"OrphanQuarantine", &c.OrphanQuarantine, DefaultOrphanQuarantine},
		{"CompletedAllowance", &c.CompletedAllowance, DefaultCompletedAllowance},
		{"LeaseDuration", &c.LeaseDuration, DefaultLeaseDuration},
		{"RenewDeadline", &c.RenewDeadline, DefaultRenewDeadline},
		{"RetryPeriod", &c.RetryPeriod, DefaultRetryPeriod},
	} {
		if *d.value < 0 {
			return c, fmt.Errorf("cleaner config: %s is negative: %s", d.name, *d.value)
		}
		setDefault(d.value, d.unset)
	}
	setDefault(&c.Fencing, ownership.Contract)
	setDefault(&c.LeaseNamespace, DefaultLeaseNamespace)
	setDefault(&c.Workers, DefaultWorkers)
	setDefault(&c.QPS, DefaultQPS)
	setDefault(&c.Burst, DefaultBurst)
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	return c, nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (c Config) policy() ownership.Policy {
	return ownership.Policy{
		Quarantine:         c.ReleaseQuarantine,
		CompletedAllowance: c.CompletedAllowance,
		Fencing:            c.Fencing,
	}
}

// Paces derived from the quarantines, so that one flag scales the whole
// controller down for tests and up for patience.

// vouchDelay is how long a new endpoint may settle before the pod is read to
// vouch for it.
func (c Config) vouchDelay() time.Duration { return min(c.ReleaseQuarantine/4, 10*time.Second) }

// repairDelay lets an ordinary CNI DEL, which clears the bit first, finish.
func (c Config) repairDelay() time.Duration { return min(c.ReleaseQuarantine/2, 2*time.Second) }

// sweepPeriod is the pace of everything that no event triggers.
func (c Config) sweepPeriod() time.Duration { return min(c.OrphanQuarantine/4, 30*time.Second) }

// sweepsOfQuarantine is how many periods of the sweep the orphan quarantine has.
func (c Config) sweepsOfQuarantine() int { return int(c.OrphanQuarantine / c.sweepPeriod()) }
