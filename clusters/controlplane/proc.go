package controlplane

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// identity names a process for good. A pid alone is given to somebody else
// after the process ended, so it is never enough to kill by.
type identity struct {
	PID        int    `json:"pid"`
	StartTicks uint64 `json:"startTicks"` // clock ticks from boot to its start
}

// procStat is what we need of /proc/<pid>/stat.
type procStat struct {
	identity
	group    int
	rssPages int64
	zombie   bool
}

// Positions in /proc/<pid>/stat, counted from the field after the name.
const (
	statState = 0
	statGroup = 2
	statStart = 19
	statRSS   = 21
)

func readStat(pid int) (procStat, error) {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return procStat{}, fmt.Errorf("reading state of process %d: %w", pid, err)
	}
	return parseStat(pid, string(data))
}

func parseStat(pid int, line string) (procStat, error) {
	// The name may hold blanks and brackets, so fields are counted from its end.
	_, rest, found := cutLast(line, ")")
	fields := strings.Fields(rest)
	if !found || len(fields) <= statRSS {
		return procStat{}, fmt.Errorf("reading state of process %d: unknown format", pid)
	}
	group, errGroup := strconv.Atoi(fields[statGroup])
	start, errStart := strconv.ParseUint(fields[statStart], 10, 64)
	rss, errRSS := strconv.ParseInt(fields[statRSS], 10, 64)
	if err := errors.Join(errGroup, errStart, errRSS); err != nil {
		return procStat{}, fmt.Errorf("reading state of process %d: %w", pid, err)
	}
	return procStat{
		identity: identity{PID: pid, StartTicks: start},
		group:    group,
		rssPages: rss,
		zombie:   fields[statState] == "Z" || fields[statState] == "X",
	}, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// identify returns the identity of a process that runs now.
func identify(pid int) (identity, error) {
	stat, err := readStat(pid)
	return stat.identity, err
}

// isAlive tells whether this very process runs. A zombie does not: it holds
// nothing any more but its number.
func (i identity) isAlive() bool {
	stat, err := readStat(i.PID)
	return err == nil && stat.identity == i && !stat.zombie
}

// listProcesses returns all processes that can be seen, by rising pid.
// Processes that end while it reads are left out.
func listProcesses() ([]procStat, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	var out []procStat
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if stat, err := readStat(pid); err == nil && !stat.zombie {
			out = append(out, stat)
		}
	}
	slices.SortFunc(out, func(a, b procStat) int { return a.PID - b.PID })
	return out, nil
}

// hasEnvironment tells whether the process was started with the variable set
// to that value. A process that cannot be read is not one of ours.
func hasEnvironment(pid int, assignment string) bool {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
	if err != nil {
		return false
	}
	for _, v := range bytes.Split(data, []byte{0}) {
		if string(v) == assignment {
			return true
		}
	}
	return false
}

// bootID changes with every boot, which makes pids and start times of an
// earlier one meaningless.
func bootID() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("reading boot ID: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}
