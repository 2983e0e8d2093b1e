package conformance

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/danm-chaos/danm-chaos/clusters"
)

// Cluster is what the suite needs of a cluster: access, with DANM's CRDs of
// the group danm.io installed.
type Cluster interface {
	RESTConfig(user string) (*rest.Config, error)
}

// Stepper is a cluster whose controllers take a step only when told to. The
// suite tells it whenever it waits for something.
type Stepper interface {
	// StepControllers lets garbage collector and namespace controller work.
	StepControllers()
}

// Compactor is a cluster that forgets old states when told to. The others are
// taken to have forgotten how they began.
type Compactor interface {
	Compact()
}

// T is the part of *testing.T that checks use.
type T interface {
	Helper()
	Context() context.Context
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Check is one behaviour of an API server, in a namespace of its own.
type Check struct {
	Name string
	run  func(t T, k *kit)
}

// Checks lists all checks, named as sentences.
func Checks() []Check {
	return slices.Concat(createChecks(), updateChecks(), patchChecks(), deleteChecks(), readChecks(), watchChecks())
}

// checkBound is how long one check may take. Most need milliseconds; on a real
// server a few wait for controllers.
const checkBound = 30 * time.Second

// Run runs every check as a subtest.
func Run(t *testing.T, cluster Cluster) {
	for _, check := range Checks() {
		t.Run(check.Name, func(t *testing.T) { runOne(t, check, cluster) })
	}
}

// Failures runs the check alone and returns what it said if it failed.
func (c Check) Failures(ctx context.Context, cluster Cluster) []string {
	r := &recorder{ctx: ctx}
	r.run(func() { runOne(r, c, cluster) })
	return r.said
}

func runOne(t T, check Check, cluster Cluster) {
	t.Helper()
	bounded, cancel := context.WithTimeout(t.Context(), checkBound)
	defer cancel()
	t = withContext{t, bounded}
	config, err := cluster.RESTConfig(clusters.UserHarness)
	if err != nil {
		t.Fatalf("getting access: %v", err)
	}
	k := newKit(t, cluster, config)
	defer k.leave()
	check.run(t, k)
}

// withContext is a T whose checks must end by a time.
type withContext struct {
	T
	ctx context.Context
}

func (t withContext) Context() context.Context { return t.ctx }

// recorder is a T that keeps what it is told.
type recorder struct {
	ctx  context.Context
	said []string
}

// stopped is the panic by which Fatalf leaves a check.
type stopped struct{}

func (r *recorder) Helper()                  {}
func (r *recorder) Context() context.Context { return r.ctx }

func (r *recorder) Errorf(format string, args ...any) {
	r.said = append(r.said, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	panic(stopped{})
}

func (r *recorder) run(check func()) {
	defer func() {
		if p := recover(); p != nil {
			if _, isStop := p.(stopped); !isStop {
				panic(p)
			}
		}
	}()
	check()
}
