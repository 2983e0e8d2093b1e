package cleaner

import (
	"context"
	"errors"
	"fmt"
	"time"

	leasesv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

// ErrLostLease is returned by Run when another replica took over. The usual
// answer is to end the process and let it be started again.
var ErrLostLease = errors.New("lost the lease")

// discoveryPeriod is the pace of looking for DANM while it is not installed.
const discoveryPeriod = 10 * time.Second

// Run cleans until the context ends, which is no error. It returns only when
// everything that it started has ended. Flags, signals, health and metrics
// servers are the caller's.
func Run(ctx context.Context, cfg Config) error {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return err
	}
	m, err := newMetrics(cfg.Registry)
	if err != nil {
		return err
	}
	cfg.REST = m.countRequests(cfg.REST)
	core, dyn, err := newClients(cfg)
	if err != nil {
		return err
	}
	if cfg.DryRun {
		return runLeading(ctx, cfg, core, dyn, m, &record.FakeRecorder{})
	}
	lead := func(ctx context.Context) error {
		events := &lateEvents{ctx: ctx, core: core}
		defer events.close()
		return runLeading(ctx, cfg, core, dyn, m, events)
	}
	if !cfg.LeaderElect {
		return lead(ctx)
	}
	// The Lease has a client, and so a pace, of its own: releases must not be
	// able to starve its renewal.
	leases, err := typedClient(cfg, cfg.REST, "/apis", leasesv1.SchemeGroupVersion)
	if err != nil {
		return err
	}
	return runElected(ctx, cfg, leasesGetter{leases}, lead)
}

// coreAPI is what a cleaner needs of Kubernetes' own API. A whole clientset
// would be sixty clients, made anew at each start.
type coreAPI interface {
	CoreV1() typedcorev1.CoreV1Interface
	Discovery() rest.Interface
}

type coreClients struct {
	core      typedcorev1.CoreV1Interface
	discovery rest.Interface
}

// CoreV1 implements coreAPI.
func (c coreClients) CoreV1() typedcorev1.CoreV1Interface { return c.core }

// Discovery implements coreAPI.
func (c coreClients) Discovery() rest.Interface { return c.discovery }

func newClients(cfg Config) (coreAPI, dynamic.Interface, error) {
	config := newLimiter(cfg.QPS, cfg.Burst).limit(cfg.REST)
	dyn, err := danm.NewDynamic(config, cfg.Encoding)
	if err != nil {
		return nil, nil, fmt.Errorf("building client: %w", err)
	}
	core, err := typedClient(cfg, config, "/api", corev1.SchemeGroupVersion)
	if err != nil {
		return nil, nil, err
	}
	found, err := rest.UnversionedRESTClientFor(discoveryConfig(cfg, config))
	if err != nil {
		return nil, nil, fmt.Errorf("building client: %w", err)
	}
	return coreClients{typedcorev1.New(core), found}, dyn, nil
}

// discoveryConfig is for a client that asks what is served. Who uses it sets a
// time-out for each question.
func discoveryConfig(cfg Config, config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.AcceptContentTypes = runtime.ContentTypeJSON
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	return danm.WithEncoding(config, cfg.Encoding)
}

// typedClient returns a client for one group of Kubernetes' own types. It uses
// protobuf; custom resources are JSON only.
func typedClient(cfg Config, config *rest.Config, apiPath string, gv schema.GroupVersion) (rest.Interface, error) {
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion = apiPath, &gv
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.NegotiatedSerializer = rest.CodecFactoryForGeneratedClient(scheme.Scheme, scheme.Codecs).WithoutConversion()
	client, err := rest.RESTClientFor(danm.WithEncoding(config, cfg.Encoding))
	if err != nil {
		return nil, fmt.Errorf("building client: %w", err)
	}
	return client, nil
}

// runElected waits for the Lease and runs lead while this replica holds it. The
// Lease is given back only after lead has ended, and lead ends when the Lease
// is lost.
func runElected(ctx context.Context, cfg Config, leases coordinationv1.LeasesGetter, lead func(context.Context) error) error {
	started := make(chan struct{})
	elector, err := newElector(cfg, leases, func(context.Context) { close(started) })
	if err != nil {
		return fmt.Errorf("setting up leader election: %w", err)
	}
	electing, stopElecting := context.WithCancel(context.WithoutCancel(ctx))
	stopped := make(chan struct{})
	go func() { defer close(stopped); elector.Run(electing) }()
	defer func() { stopElecting(); <-stopped }()
	if cfg.Ready != nil {
		cfg.Ready()
	}
	select {
	case <-ctx.Done():
		return nil
	case <-stopped:
		return ErrLostLease
	case <-started:
	}
	if ctx.Err() != nil {
		return nil // both were ready
	}
	leading, lost := context.WithCancelCause(ctx)
	defer lost(nil)
	go func() { <-stopped; lost(ErrLostLease) }()
	err = lead(leading)
	if errors.Is(context.Cause(leading), ErrLostLease) {
		return ErrLostLease
	}
	return err
}

func newElector(cfg Config, leases coordinationv1.LeasesGetter, onStarted func(context.Context)) (*leaderelection.LeaderElector, error) {
	return leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: cfg.LeaseNamespace, Name: LeaseName},
			Client:     leases,
			LockConfig: resourcelock.ResourceLockConfig{Identity: cfg.Identity},
		},
		Name:          LeaseName,
		LeaseDuration: cfg.LeaseDuration, RenewDeadline: cfg.RenewDeadline, RetryPeriod: cfg.RetryPeriod,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: onStarted,
			OnStoppedLeading: func() {},
			OnNewLeader: func(identity string) {
				cfg.Logger.Info("leader elected", "leader", identity, "self", identity == cfg.Identity)
			},
		},
	})
}

// runLeading runs one controller after the other until the context ends: a new
// one starts whenever the cluster begins to serve other DANM resources.
func runLeading(ctx context.Context, cfg Config, core coreAPI, dyn dynamic.Interface, m *metrics, events eventWriter) error {
	m.leading.Set(1)
	defer m.leading.Set(0)
	defer m.stock.replace(nil)
	for {
		found, err := waitForDANM(ctx, cfg, core, dyn)
		if err != nil {
			return nil // the context ended
		}
		err = newController(clients{core: core, danm: danm.NewClient(dyn, found.group)}, cfg, found, m, events).run(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errResourcesChanged):
			cfg.Logger.Info("starting anew", "cause", err.Error())
		case err != nil:
			return err
		}
	}
}
