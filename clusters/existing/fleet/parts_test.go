package fleet

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestIndexesAreReadAsJobsWriteThem(t *testing.T) {
	for list, want := range map[string][]int{"": nil, "3": {3}, "1,3-5,7": {1, 3, 4, 5, 7}, "0-1": {0, 1}, "x,2": {2}} {
		if got := parseIndexes(list); !slices.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", list, got, want)
		}
	}
}

func TestTheJobIsAsReviewed(t *testing.T) {
	job := jobOf(Options{
		RunID: "run", Image: "registry.example/danm-chaos:v1", Args: []string{"shard", "node-shutdown"}, Shards: []string{"1-5", "6-10"}, Attempts: 3, Lifetime: time.Hour,
	}, "shards-1", time.Unix(0, 0))
	got, err := json.MarshalIndent(job, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "job.json")
	if *update {
		if err := os.WriteFile(path, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.TrimSpace(string(want)), string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func podAt(index int, state corev1.ContainerState) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{batchv1.JobCompletionIndexAnnotation: fmt.Sprint(index)}},
		Status:     corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{State: state}}},
	}
}

func waiting(reason string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "because"}}
}

func TestPodsThatWaitForAnImageAreHopelessAfterAWhile(t *testing.T) {
	running := podAt(1, corev1.ContainerState{})
	running.Status.Phase = corev1.PodRunning
	gone := podAt(2, corev1.ContainerState{})
	gone.Status.Phase = corev1.PodSucceeded
	stuck := podAt(0, waiting("ImagePullBackOff"))
	tests := []struct {
		name string
		pods []corev1.Pod
		want bool
	}{
		{"all wait for an image", []corev1.Pod{stuck, podAt(1, waiting("InvalidImageName"))}, true},
		{"one that waits, one that has ended", []corev1.Pod{stuck, gone}, true},
		{"one runs", []corev1.Pod{stuck, running}, false},
		{"one only begins", []corev1.Pod{stuck, podAt(1, waiting("ContainerCreating"))}, false},
		{"all have ended", []corev1.Pod{gone}, false},
		{"none is made yet", nil, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := &gathering{}
			now := time.Unix(1000, 0)
			if g.isHopeless(tt.pods, now) {
				t.Error("given up at once")
			}
			if got := g.isHopeless(tt.pods, now.Add(hopelessMax)); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestStatusCountsWhatShardsWaitFor(t *testing.T) {
	ended := podAt(2, corev1.ContainerState{})
	ended.Status.Phase = corev1.PodFailed
	deleted := podAt(3, waiting("ContainerCreating"))
	deleted.DeletionTimestamp = &metav1.Time{}
	unscheduled := podAt(1, corev1.ContainerState{})
	unscheduled.Status.ContainerStatuses = nil
	unscheduled.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
	var got Status
	shards := []string{"1-5", "6-10", "11-15", "16-20", "21-25"}
	g := &gathering{Fleet: &Fleet{shards: shards, options: Options{Shards: shards}}, sink: Sink{Told: func(s Status) { got = s }},
		left: map[string]bool{"1-5": true, "6-10": true, "11-15": true, "16-20": true}}
	g.tell(t.Context(), []corev1.Pod{podAt(0, waiting("ErrImagePull")), unscheduled, ended, deleted, podAt(4, waiting("of a shard that is gathered"))})
	want := Status{Gathered: 1, All: 5, Words: map[string]string{}, Waiting: map[string]int{"ErrImagePull": 1, corev1.PodReasonUnschedulable: 1, notMade: 2}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAnAPIServerThatIsAwayIsBorneWithForAWhile(t *testing.T) {
	away := errors.New("connection refused")
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "jobs"}, "shards-1", nil)
	begin := time.Unix(1000, 0)
	tests := []struct {
		name    string
		answers []error // nil answers with the Job
		after   time.Duration
		wantErr bool
	}{
		{"it is there", []error{nil, nil}, silenceMax + 1, false},
		{"it is away for a while", []error{away, away, nil}, silenceMax, false},
		{"it is away for too long", []error{away, away}, silenceMax + 1, true},
		{"it is back in between", []error{nil, away}, silenceMax, false},
		{"it refuses", []error{forbidden}, 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "shards-1"}}
			core := fake.NewClientset(job)
			var answer error
			core.PrependReactor("get", "jobs", func(kubetesting.Action) (bool, runtime.Object, error) { return answer != nil, nil, answer })
			g := &gathering{Fleet: &Fleet{core: core, namespace: "ns", job: "shards-1", shards: []string{"1-5"}, options: Options{Shards: []string{"1-5"}, Progress: io.Discard}},
				left: map[string]bool{"1-5": true}}
			var err error
			for i, a := range tt.answers {
				answer = a
				var done bool
				if done, err = g.look(t.Context(), begin.Add(tt.after*time.Duration(i)/time.Duration(max(1, len(tt.answers)-1)))); done {
					t.Fatal("the Job has not ended")
				}
			}
			if (err != nil) != tt.wantErr {
				t.Errorf("got %v, want an error: %v", err, tt.wantErr)
			}
		})
	}
}

func TestWaitingAnewBeginsAnew(t *testing.T) {
	g := &gathering{}
	now := time.Unix(1000, 0)
	stuck := []corev1.Pod{podAt(0, waiting("ErrImagePull"))}
	g.isHopeless(stuck, now)
	g.isHopeless([]corev1.Pod{podAt(0, waiting("ContainerCreating"))}, now.Add(hopelessMax/2))
	if g.isHopeless(stuck, now.Add(hopelessMax)) {
		t.Error("an image that came in between does not count")
	}
}

func TestALostShardSaysWhatBecameOfItsLastPod(t *testing.T) {
	ended := func(code int32, reason, message string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, Message: message}}
	}
	evicted := podAt(0, corev1.ContainerState{})
	evicted.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "the node was low on memory"}
	deadline := &batchv1.Job{Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{
		{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: batchv1.JobReasonDeadlineExceeded}}}}
	for _, tt := range []struct {
		name string
		job  *batchv1.Job
		pods []corev1.Pod
		want string
	}{
		{"out of memory", &batchv1.Job{}, []corev1.Pod{podAt(0, ended(137, "OOMKilled", ""))}, "exit code 137, OOMKilled"},
		{"its last words", &batchv1.Job{}, []corev1.Pod{podAt(0, ended(64, "Error", "begin\nunknown flag\n"))}, "exit code 64: unknown flag"},
		{"no image", &batchv1.Job{}, []corev1.Pod{podAt(0, waiting("ImagePullBackOff"))}, "ImagePullBackOff: because"},
		{"evicted", &batchv1.Job{}, []corev1.Pod{evicted}, "Evicted: the node was low on memory"},
		{"of another shard", &batchv1.Job{}, []corev1.Pod{podAt(1, ended(1, "Error", ""))}, "its pods are gone"},
		{"too late", deadline, nil, "the Job's time was over"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := &gathering{Fleet: &Fleet{shards: []string{"1-5", "6-10"}}, left: map[string]bool{"1-5": true}}
			if got := g.reasons(tt.job, tt.pods); len(got) != 1 || got["1-5"] != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestAPodKnowsItsShardByItsIndex(t *testing.T) {
	for index, want := range map[string]string{"0": "1-5", "1": "6-10", "2": "", "-1": "", "": "", "one": ""} {
		t.Setenv(indexVariable, index)
		got, err := ShardOfPod("1-5,6-10")
		if got != want || (err != nil) != (want == "") {
			t.Errorf("index %q: got %q, %v", index, got, err)
		}
	}
}

func TestOptionsThatCannotWorkAreRefused(t *testing.T) {
	good := Options{Image: "i", Shards: []string{"1-5"}}.withDefaults()
	if err := good.check(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Options){
		"no image":               func(o *Options) { o.Image = "" },
		"too many shards":        func(o *Options) { o.Shards = make([]string, shardsMax+1) },
		"no attempt":             func(o *Options) { o.Attempts = -1 },
		"no time":                func(o *Options) { o.Lifetime = time.Millisecond },
		"a shard that is a path": func(o *Options) { o.Shards = []string{"../x"} },
	} {
		bad := good
		change(&bad)
		if bad.check() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
