package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/danm-chaos/danm-chaos/clusters/controlplane"
	"github.com/danm-chaos/danm-chaos/clusters/danmcni"
	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
	"github.com/danm-chaos/danm-chaos/harness/search"
)

// workerNeeds is what a worker should be able to use. In 2,000 seeds of all
// scenarios none grew beyond 310 MiB.
const workerNeeds = 384 << 20

// examineSim looks at what searches with the simulator need of this machine.
func examineSim(ctx context.Context) []controlplane.Finding {
	cores := controlplane.Finding{
		Name: "cores", OK: true, Detail: fmt.Sprintf("%d, with one worker process each; searches are as much faster as there are more", runtime.NumCPU()),
	}
	return []controlplane.Finding{cores, examineMemoryLimit(memoryLimit(), runtime.NumCPU()), selfCheck(ctx)}
}

// memoryFiles hold the limit of this process' control group, version 2 and 1.
var memoryFiles = []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}

// memoryLimit is how many bytes this machine or its control group grants; 0 is
// not known.
func memoryLimit() uint64 {
	limit := machineMemory()
	for _, file := range memoryFiles {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		// "max" is no number, and no limit.
		if bytes, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64); err == nil && (limit == 0 || bytes < limit) {
			limit = bytes
		}
	}
	return limit
}

func machineMemory() uint64 {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(data), "\n")
	fields := strings.Fields(first) // MemTotal: N kB
	if len(fields) < 2 {
		return 0
	}
	kilobytes, _ := strconv.ParseUint(fields[1], 10, 64) // 0 is not known
	return kilobytes << 10
}

func examineMemoryLimit(limit uint64, workers int) controlplane.Finding {
	f := controlplane.Finding{Name: "memory", OK: true, Optional: true, Detail: fmt.Sprintf("limit %d MiB for %d workers", limit>>20, workers)}
	needs := uint64(workers) * workerNeeds
	switch {
	case limit == 0:
		f.Detail = "the limit is not known"
	case limit < needs:
		f.OK, f.Cure = false, fmt.Sprintf("give it %d MiB, or fewer cores", needs>>20)
	}
	return f
}

// selfCheckSeed is any seed.
const selfCheckSeed = 1

// selfCheck plays one simulation twice, in two processes.
func selfCheck(ctx context.Context) controlplane.Finding {
	f := controlplane.Finding{Name: "self check", Cure: "report it with this output: equal simulations must give equal histories everywhere"}
	digests, err := playTwice(ctx)
	switch {
	case err != nil:
		f.Detail = err.Error()
	case digests[0] != digests[1]:
		f.Detail = fmt.Sprintf("one seed gave two histories, %016x and %016x", digests[0], digests[1])
	default:
		f.OK, f.Cure, f.Detail = true, "", fmt.Sprintf("one seed played twice gave history %016x both times", digests[0])
	}
	return f
}

func playTwice(ctx context.Context) ([]uint64, error) {
	scenario, err := namedScenario("node-shutdown")
	if err != nil {
		return nil, err
	}
	shape := scenario.Shape(defaultGroup, string(danmcni.Danm43))
	shape.Seed = selfCheckSeed
	plan, err := schedule.Draw(shape)
	if err != nil {
		return nil, err
	}
	var digests []uint64
	for range 2 {
		p, err := playAlone(ctx, plan)
		if err != nil {
			return nil, err
		}
		if p.Verdict != check.Valid {
			return nil, fmt.Errorf("the cleaner that ships is %s in seed %d", p.Verdict, plan.Seed)
		}
		digests = append(digests, p.Digest)
	}
	return digests, nil
}

// playAlone plays a simulation in a process of its own.
func playAlone(ctx context.Context, plan schedule.Simulation) (p search.Played, err error) {
	pool := workers()
	pool.Workers = 1
	session, err := pool.Open(ctx)
	if err != nil {
		return p, fmt.Errorf("starting a worker: %w", err)
	}
	defer session.Close()
	p, _, isPlayed, err := session.First(ctx, []search.Job{{Simulation: &plan, Cleaner: defaultCleaner}}, func(search.Played) bool { return true })
	switch {
	case err != nil:
		return p, err
	case !isPlayed:
		return p, errors.New("the worker gave no answer")
	case p.Trouble != "":
		return p, fmt.Errorf("bug in the simulator: %s", p.Trouble)
	}
	return p, nil
}
