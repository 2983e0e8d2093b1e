package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// sleeper starts a child in a group of its own that Clean may kill.
func sleeper(t *testing.T, runID string) *process {
	t.Helper()
	p, err := startProcess(command{name: "sleeper", argv: []string{"sleep", "1000"}, env: []string{runVariable + "=" + runID}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.kill() })
	return p
}

// deadIdentity is of a process that has ended.
func deadIdentity(t *testing.T) identity {
	t.Helper()
	p := sleeper(t, "ended")
	if err := p.kill(); err != nil {
		t.Fatal(err)
	}
	return p.identity
}

// leaveRun writes the journal of a run, as if its owner had been killed, and
// makes its folder.
func leaveRun(t *testing.T, data journalData) (folder string) {
	t.Helper()
	runs, err := runsFolder()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(runs, 0o700); err != nil {
		t.Fatal(err)
	}
	j := journal{path: filepath.Join(runs, data.RunID+".json"), data: data}
	if err := j.write(); err != nil {
		t.Fatal(err)
	}
	folder, err = os.MkdirTemp("", folderPrefix(data.RunID)+"*")
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

func deadRun(t *testing.T, runID string, processes ...journalProcess) journalData {
	t.Helper()
	data, err := newJournalData(runID)
	if err != nil {
		t.Fatal(err)
	}
	data.Owner, data.Processes = deadIdentity(t), processes
	return data
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func TestCleanRemovesWhatADeadRunLeft(t *testing.T) {
	isolate(t)
	left := sleeper(t, "dead")
	folder := leaveRun(t, deadRun(t, "dead", journalProcess{"etcd", left.identity}))
	var out strings.Builder
	if err := Clean(t.Context(), "", &out); err != nil {
		t.Fatal(err)
	}
	if left.isAlive() || exists(folder) {
		t.Errorf("process alive %v, folder there %v", left.isAlive(), exists(folder))
	}
	checkNoJournal(t)
	for _, want := range []string{"killed process", "of etcd", "removed " + folder, "run dead: cleaned"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, out.String())
		}
	}
}

func TestCleanLeavesAloneAPidThatIsSomebodyElsesNow(t *testing.T) {
	isolate(t)
	stranger := sleeper(t, "another")
	earlier := stranger.identity
	earlier.StartTicks--
	leaveRun(t, deadRun(t, "dead", journalProcess{"etcd", earlier}))
	var out strings.Builder
	if err := Clean(t.Context(), "dead", &out); err != nil {
		t.Fatal(err)
	}
	if !stranger.isAlive() {
		t.Error("a stranger was killed")
	}
	if !strings.Contains(out.String(), "left alone") {
		t.Errorf("it is not said:\n%s", out.String())
	}
	checkNoJournal(t)
}

func TestCleanKillsNothingThatStartedBeforeThisBoot(t *testing.T) {
	isolate(t)
	p := sleeper(t, "old")
	data := deadRun(t, "old", journalProcess{"etcd", p.identity})
	data.BootID = "an earlier one"
	folder := leaveRun(t, data)
	if err := Clean(t.Context(), "", t.Output()); err != nil {
		t.Fatal(err)
	}
	if !p.isAlive() || exists(folder) {
		t.Errorf("process alive %v, folder there %v", p.isAlive(), exists(folder))
	}
}

func TestCleanKillsAGrandchildWhoseParentIsGone(t *testing.T) {
	isolate(t)
	// The shell leaves the sleeper behind in its group; started without our
	// reaper, nobody kills it there.
	shell := exec.Command("sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!")
	shell.Env = append(os.Environ(), runVariable+"=dead")
	out, parent := runInGroup(t, shell)
	var grandchild int
	if err := json.Unmarshal(out, &grandchild); err != nil {
		t.Fatal(err)
	}
	id, err := identify(grandchild)
	if err != nil {
		t.Fatal(err)
	}
	leaveRun(t, deadRun(t, "dead", journalProcess{"cleaner", parent}))
	if err := Clean(t.Context(), "", t.Output()); err != nil {
		t.Fatal(err)
	}
	if id.isAlive() {
		t.Error("the grandchild still runs")
	}
}

func TestCleanLeavesALivingRunAlone(t *testing.T) {
	isolate(t)
	j, err := openJournal("alive")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openJournal("alive"); err == nil || !strings.Contains(err.Error(), "there already") {
		t.Errorf("a second run with the same ID: %v", err)
	}
	if err := Clean(t.Context(), "", t.Output()); err != nil {
		t.Error(err)
	}
	if err := Clean(t.Context(), "alive", t.Output()); err == nil || !strings.Contains(err.Error(), "still goes") {
		t.Errorf("asked by its ID: %v", err)
	}
	if !exists(j.path) {
		t.Error("the journal is gone")
	}
	if err := j.remove(); err != nil {
		t.Error(err)
	}
}

func TestCleanRefusesAJournalThatIsNotOfARun(t *testing.T) {
	valid := func(change func(*journalData)) string {
		data := journalData{Version: journalVersion, RunID: "r", FolderPattern: filepath.Join(os.TempDir(), folderPrefix("r")+"*")}
		change(&data)
		text, err := json.Marshal(data)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	tests := []struct{ name, text, want string }{
		{"half a file", `{"version":1,`, "unexpected end"},
		{"a later format", valid(func(d *journalData) { d.Version = 2 }), "format 2"},
		{"another run's", valid(func(d *journalData) { d.RunID = "s" }), `of run "s"`},
		{"a folder that no run makes", valid(func(d *journalData) { d.FolderPattern = "/home/*" }), "no folder of run r"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			isolate(t)
			runs, err := runsFolder()
			if err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(runs, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(runs, "r.json"), []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := Clean(t.Context(), "", t.Output()); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

func TestCleanSparesARunWhoseIDBeginsTheSame(t *testing.T) {
	isolate(t)
	other, err := os.MkdirTemp("", folderPrefix("dead-too")+"*")
	if err != nil {
		t.Fatal(err)
	}
	leaveRun(t, deadRun(t, "dead"))
	if err := Clean(t.Context(), "", t.Output()); err != nil {
		t.Fatal(err)
	}
	if !exists(other) {
		t.Error("the folder of run dead-too is gone")
	}
}

func TestCleanRemovesTheJournalOfARunThatDiedBeforeItWroteAnything(t *testing.T) {
	isolate(t)
	j, err := openJournal("young")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{j.path, j.path + ".next"} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := Clean(t.Context(), "", t.Output()); err != nil {
		t.Error(err)
	}
	checkNoJournal(t)
}

func TestARunIDCannotLeadElsewhere(t *testing.T) {
	isolate(t)
	for _, id := range []string{"", "../x", "a/b", "*", "a b", ".x", strings.Repeat("x", 64)} {
		if _, err := openJournal(id); err == nil {
			t.Errorf("run ID %q was accepted", id)
		}
	}
}

func TestTheJournalForgetsProcessesThatEnded(t *testing.T) {
	isolate(t)
	j, err := openJournal("r")
	if err != nil {
		t.Fatal(err)
	}
	ended, lives := deadIdentity(t), sleeper(t, "r").identity
	for _, id := range []identity{ended, lives} {
		if err := j.add("p", id); err != nil {
			t.Fatal(err)
		}
	}
	data, err := readJournal(j.path)
	if err != nil || len(data.Processes) != 1 || data.Processes[0].identity != lives {
		t.Errorf("%v, %v; want only %v", data.Processes, err, lives)
	}
}

func TestParseStatCountsFromTheEndOfTheName(t *testing.T) {
	const line = "77 (a b) (c)) S 1 55 55 0 -1 4194304 1 0 0 0 1 1 0 0 20 0 1 0 9876 1000 321 18446744073709551615"
	got, err := parseStat(77, line)
	want := procStat{identity: identity{77, 9876}, group: 55, rssPages: 321}
	if got != want || err != nil {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	for _, bad := range []string{"", "77 sleep S 1", "77 (x) S 1 2"} {
		if _, err := parseStat(77, bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
	zombie, err := parseStat(77, strings.Replace(line, " S ", " Z ", 1))
	if !zombie.zombie || err != nil {
		t.Errorf("not seen as a zombie: %+v, %v", zombie, err)
	}
}

func TestAProcessTakesItsWholeGroupAlong(t *testing.T) {
	var out strings.Builder
	p, err := startProcess(command{name: "shell", argv: []string{"sh", "-c", "sleep 1000 & echo $!"}, output: &out})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.done:
	case <-time.After(10 * time.Second):
		t.Fatal("the shell did not end")
	}
	var child int
	if err := json.Unmarshal([]byte(out.String()), &child); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	err = poll(ctx, func(context.Context) (bool, error) {
		stat, err := readStat(child)
		return err != nil || stat.zombie, nil
	})
	if err != nil {
		t.Errorf("the child of the shell still runs: %v", err)
	}
	if p.exitError() != nil {
		t.Errorf("the shell ended well, but: %v", p.exitError())
	}
}

func TestStopKillsWhoDoesNotListen(t *testing.T) {
	p, err := startProcess(command{name: "deaf", argv: []string{"sh", "-c", "trap '' TERM; while :; do sleep 1; done"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.stop(t.Context(), 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if p.isAlive() || p.exitError() == nil {
		t.Errorf("alive %v, end %v", p.isAlive(), p.exitError())
	}
}

// runInGroup runs a command to its end in a group of its own, and leaves its
// children alone. It returns the output and who the command was.
func runInGroup(t *testing.T, cmd *exec.Cmd) ([]byte, identity) {
	t.Helper()
	var out bytes.Buffer
	cmd.Stdout = &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	id, err := identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), id
}
