package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/danm-chaos/danm-chaos/cleaner"
	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ownership"
)

// flags are the command line of the controller.
type flags struct {
	kubeconfig         string
	group              string
	releaseQuarantine  time.Duration
	orphanQuarantine   time.Duration
	completedAllowance time.Duration
	fencing            string
	dryRun             bool
	leaderElect        bool
	leaseNamespace     string
	metricsAddress     string
	probeAddress       string
	releaseLog         string
	workers            int
	qps                float32
	burst              int
	verbosity          int
}

func (f *flags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.kubeconfig, "kubeconfig", "", "path of a kubeconfig; empty uses the service account of the pod (upstream's -kubeconf is accepted too)")
	fs.StringVar(&f.group, "danm-api", "", "DANM API group, danm.io or danm.k8s.io; empty finds out which one the cluster uses")
	fs.DurationVar(&f.releaseQuarantine, "release-quarantine", cleaner.DefaultReleaseQuarantine, "how long an endpoint must go without owner before its address is released")
	fs.DurationVar(&f.orphanQuarantine, "orphan-quarantine", cleaner.DefaultOrphanQuarantine, "how long an allocated address must go without endpoint before it is released; must exceed the longest CNI ADD")
	fs.DurationVar(&f.completedAllowance, "completed-allowance", cleaner.DefaultCompletedAllowance, "how long the node of a Succeeded or Failed pod has for its own CNI DEL")
	fs.StringVar(&f.fencing, "fencing", string(ownership.Contract), "contract: a force-deleted pod is gone; strict: hold its address while its node is silent and neither deleted nor tainted out-of-service")
	fs.BoolVar(&f.dryRun, "dry-run", false, "log what would be released and write nothing, no Event and no Lease either")
	fs.BoolVar(&f.leaderElect, "leader-elect", true, "let replicas take turns by a Lease; several active ones are safe, only wasteful")
	fs.StringVar(&f.leaseNamespace, "leader-elect-namespace", cleaner.DefaultLeaseNamespace, "namespace of the Lease")
	fs.StringVar(&f.metricsAddress, "metrics-bind-address", ":8080", "address of /metrics; 0 turns it off")
	fs.StringVar(&f.probeAddress, "health-probe-bind-address", ":8081", "address of /healthz and /readyz; 0 turns it off")
	fs.StringVar(&f.releaseLog, "release-log", "", "file to append one line of JSON to per release: who held which address until when, by what evidence")
	fs.IntVar(&f.workers, "workers", cleaner.DefaultWorkers, "endpoints handled at the same time")
	fs.Float32Var(&f.qps, "kube-api-qps", cleaner.DefaultQPS, "API requests a second, on average")
	fs.IntVar(&f.burst, "kube-api-burst", cleaner.DefaultBurst, "API requests at once")
	fs.IntVarP(&f.verbosity, "verbosity", "v", 0, "1 logs details as well")
}

// config checks the flags and turns them into the controller's configuration.
func (f *flags) config() (cleaner.Config, error) {
	fencing, err := ownership.ParseFencing(f.fencing)
	if err != nil {
		return cleaner.Config{}, usageError{fmt.Errorf("--fencing: %w", err)}
	}
	var group danm.Group
	if f.group != "" {
		if group, err = danm.ParseGroup(f.group); err != nil {
			return cleaner.Config{}, usageError{fmt.Errorf("--danm-api: %w", err)}
		}
	}
	if f.releaseQuarantine <= 0 || f.orphanQuarantine <= 0 || f.completedAllowance < 0 || f.workers <= 0 || f.qps <= 0 || f.burst <= 0 {
		return cleaner.Config{}, usageError{fmt.Errorf("quarantines, --workers, --kube-api-qps and --kube-api-burst must be greater than zero")}
	}
	return cleaner.Config{
		Group: group, ReleaseQuarantine: f.releaseQuarantine, OrphanQuarantine: f.orphanQuarantine,
		CompletedAllowance: f.completedAllowance, Fencing: fencing, DryRun: f.dryRun,
		LeaderElect: f.leaderElect, LeaseNamespace: f.leaseNamespace,
		Workers: f.workers, QPS: f.qps, Burst: f.burst,
	}, nil
}

func (f *flags) restConfig() (*rest.Config, error) {
	config, err := f.access()
	if err != nil {
		return nil, err
	}
	config.UserAgent = cleaner.LeaseName // managedFields and audit logs tell it as the writer
	return config, nil
}

func (f *flags) access() (*rest.Config, error) {
	if f.kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, usageError{fmt.Errorf("no --kubeconfig, and not in a pod: %w", err)}
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", f.kubeconfig)
	if err != nil {
		return nil, usageError{fmt.Errorf("--kubeconfig %s: %w", f.kubeconfig, err)}
	}
	return config, nil
}

// run serves until the context ends.
func (f *flags) run(ctx context.Context, stderr io.Writer) error {
	cfg, err := f.config()
	if err != nil {
		return err
	}
	if cfg.REST, err = f.restConfig(); err != nil {
		return err
	}
	if cfg.Identity, err = identity(); err != nil {
		return err
	}
	if f.releaseLog != "" {
		if cfg.ReleaseLog, err = openReleaseLog(f.releaseLog); err != nil {
			return usageError{fmt.Errorf("--release-log: %w", err)}
		}
	}
	cfg.Logger = logger(stderr, f.verbosity)
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	cfg.Registry = registry
	servers, err := listen(f.metricsAddress, f.probeAddress, registry)
	if err != nil {
		return usageError{err}
	}
	defer servers.close()
	cfg.Ready = servers.setReady
	return cleaner.Run(ctx, cfg)
}
