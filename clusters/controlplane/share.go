package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"k8s.io/client-go/dynamic"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/harness/history"
)

// What other kinds of clusters need of this one: how programs are built and
// kept, how the audit log is read, and how a dead run is told from a live one.

// ToolSet is a module in clusters/tools and the programs that are built there.
type ToolSet struct {
	Name       string        // folder in clusters/tools
	Module     string        // the module whose version is the programs' version
	Programs   []ToolProgram // in the order of building
	Kubernetes bool          // needs its version linked in
}

// ToolProgram is a program and the package it is built from.
type ToolProgram struct{ Name, Package string }

// ToolSets returns the sets that a control plane is made of.
func ToolSets() []ToolSet {
	var out []ToolSet
	for _, s := range toolSets() {
		shared := ToolSet{Name: s.name, Module: s.module, Kubernetes: s.kubernetes}
		for _, p := range s.programs {
			shared.Programs = append(shared.Programs, ToolProgram{p.name, p.pkg})
		}
		out = append(out, shared)
	}
	return out
}

func (s ToolSet) toolSet() toolSet {
	out := toolSet{name: s.Name, module: s.Module, kubernetes: s.Kubernetes}
	for _, p := range s.Programs {
		out.programs = append(out.programs, toolProgram{p.Name, p.Package})
	}
	return out
}

// Tools are built programs.
type Tools struct {
	Paths map[string]string // by the name of the program
	// Keys name everything that went into the programs, one for each set.
	Keys []string
	// Missing lists the sets that are not built yet.
	Missing []string

	recipes []recipe
}

// FindTools looks into the cache and builds nothing.
func FindTools(ctx context.Context, sets []ToolSet) (Tools, error) {
	t := Tools{Paths: map[string]string{}}
	root, err := findProjectRoot()
	if err != nil {
		return t, err
	}
	cache, err := cacheFolder()
	if err != nil {
		return t, err
	}
	for _, s := range sets {
		r, err := newRecipe(ctx, root, cache, s.toolSet())
		if err != nil {
			return t, err
		}
		t.recipes = append(t.recipes, r)
		t.Keys = append(t.Keys, filepath.Base(r.target))
		if !programs(t.Paths).addFrom(r.target, r.set) {
			t.Missing = append(t.Missing, s.Name)
		}
	}
	return t, nil
}

// Build makes what is missing, and tells progress of it.
func (t *Tools) Build(ctx context.Context, progress io.Writer) error {
	for _, r := range t.recipes {
		if programs(t.Paths).addFrom(r.target, r.set) {
			continue
		}
		if err := r.build(ctx, progress); err != nil {
			return err
		}
		if !programs(t.Paths).addFrom(r.target, r.set) {
			return fmt.Errorf("building %s: %s is not complete", r.set.name, r.target)
		}
	}
	t.Missing = nil
	return nil
}

// ProjectRoot is the checkout that programs are built from.
func ProjectRoot() (string, error) { return findProjectRoot() }

// CacheFolder is where built programs and the journals of runs are kept.
func CacheFolder() (string, error) { return cacheFolder() }

// LockFile waits for the lock of a file, and says so if it has to.
func LockFile(ctx context.Context, path string, progress io.Writer) (unlock func(), err error) {
	return lockFile(ctx, path, progress)
}

// AuditTail follows an audit log and records what it says.
type AuditTail struct{ tail *auditTail }

// FollowAudit begins to follow the log, which must exist.
func FollowAudit(path string, recorder history.Recorder) (*AuditTail, error) {
	tail, err := openAuditTail(path, recorder)
	return &AuditTail{tail}, err
}

// Drain records everything that is in the log now.
func (t *AuditTail) Drain(ctx context.Context) error { return t.tail.drain(ctx) }

// Close records the rest of the log. The API server must have ended.
func (t *AuditTail) Close(ctx context.Context) error { return t.tail.close(ctx) }

// AuditPolicy is what the API server has to keep for FollowAudit.
func AuditPolicy() map[string]any { return auditPolicy() }

// InstallCRDs creates DANM's resources and returns when all are served.
func InstallCRDs(ctx context.Context, client dynamic.Interface, group danm.Group) error {
	return installCRDs(ctx, client, group)
}

// Process names a process for good: a pid alone is given to others later.
type Process struct {
	PID        int    `json:"pid"`
	StartTicks uint64 `json:"startTicks"`
	BootID     string `json:"bootId"`
}

// ThisProcess returns the name of the calling process.
func ThisProcess() (Process, error) {
	boot, err := bootID()
	if err != nil {
		return Process{}, err
	}
	id, err := identify(os.Getpid())
	return Process{PID: id.PID, StartTicks: id.StartTicks, BootID: boot}, err
}

// IsAlive tells whether this very process runs, on this very boot.
func (p Process) IsAlive() bool {
	boot, err := bootID()
	return err == nil && boot == p.BootID && identity{PID: p.PID, StartTicks: p.StartTicks}.isAlive()
}

// IsRunID tells whether the text can be the ID of a run, and so be part of
// names and patterns.
func IsRunID(id string) bool { return runIDPattern.MatchString(id) }

// StartCleaner starts a cleaner as a child that dies with this program and bears
// the mark of the run.
func StartCleaner(s clusters.CleanerSpec, kubeconfig, runID string) (clusters.CleanerProcess, error) {
	if len(s.Argv) == 0 {
		return nil, errors.New("starting the cleaner: no program given")
	}
	argv := make([]string, len(s.Argv))
	for i, arg := range s.Argv {
		argv[i] = strings.ReplaceAll(arg, kubeconfigPlaceholder, kubeconfig)
	}
	if s.Logs == nil {
		s.Logs = io.Discard
	}
	p, err := startProcess(command{name: cleanerName, argv: argv, env: []string{runVariable + "=" + runID}, output: s.Logs})
	if err != nil {
		return nil, fmt.Errorf("starting the cleaner: %w", err)
	}
	return cleanerProcess{p}, nil
}

// KillMarked kills every process that bears the mark of a dead run, as those of
// a cleaner that was wrapped in a shell do, and returns how many there were.
func KillMarked(ctx context.Context, runID string) (int, error) {
	all, err := listProcesses()
	if err != nil {
		return 0, err
	}
	var killed []identity
	for _, stat := range all {
		if !hasEnvironment(stat.PID, runVariable+"="+runID) {
			continue
		}
		if err := syscall.Kill(stat.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return len(killed), fmt.Errorf("killing process %d of run %s: %w", stat.PID, runID, err)
		}
		killed = append(killed, stat.identity)
	}
	return len(killed), waitUntilDead(ctx, killed)
}

// ExamineDisk tells whether the disk of the folder has the space.
func ExamineDisk(name, folder string, need uint64) Finding { return examineDisk(name, folder, need) }
