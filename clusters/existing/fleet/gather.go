package fleet

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
)

// Bounds of gathering.
const (
	gatherInterval = time.Second
	statusInterval = 5 * time.Second
	logTimeout     = 3 * time.Second // for the last words of one pod
	// silenceMax is how long the API server may fail to answer. Until then it
	// may be restarted, or the network of whoever gathers.
	silenceMax = 5 * time.Minute
	// hopelessMax is how long all pods may wait for an image that does not come.
	hopelessMax = 2 * time.Minute
)

// Sink is what becomes of what is gathered.
type Sink struct {
	// Took is called once for each shard with its result. Gathering ends when it
	// wants no more, or fails.
	Took func(shard string, result []byte) (more bool, err error)
	// Told is called now and then with how things are; nil is allowed.
	Told func(Status)
}

// Status is how a fleet is getting on.
type Status struct {
	Gathered, All int
	// Words are the last lines that running pods wrote, by shard.
	Words map[string]string
	// Waiting counts pods that do not run yet, by the reason.
	Waiting map[string]int
}

// Gather hands over results as they are stored and returns the shards without
// one, each with the reason, when the Job has ended or the sink has enough. The
// error says that the cluster could not be asked.
func (f *Fleet) Gather(ctx context.Context, sink Sink) (lost map[string]string, err error) {
	g := &gathering{Fleet: f, sink: sink, left: map[string]bool{}}
	for _, shard := range f.options.Shards {
		g.left[shard] = true
	}
	// What is stored already needs no Job.
	if err := g.collect(ctx, f.stored()); err != nil || g.isOver() {
		return nil, g.enough(err)
	}
	err = wait.PollUntilContextCancel(ctx, gatherInterval, true, func(ctx context.Context) (bool, error) { return g.look(ctx, time.Now()) })
	if err = g.enough(err); err != nil || g.satisfied {
		return nil, err
	}
	return g.lost, nil
}

// stored lists the shards that an earlier Job may have finished.
func (f *Fleet) stored() []string {
	if !f.options.Resume {
		return nil
	}
	return f.options.Shards
}

// errEnough ends gathering because the sink wants no more.
var errEnough = errors.New("enough is known")

type gathering struct {
	*Fleet
	sink      Sink
	left      map[string]bool   // shards without result
	lost      map[string]string // reasons, once the Job has ended
	satisfied bool

	answered time.Time // when the API server last did
	told     time.Time
	hopeless time.Time // since when all pods wait for nothing; zero while they do not
}

// isOver tells whether nothing is left to wait for.
func (g *gathering) isOver() bool { return len(g.left) == 0 || g.job == "" }

func (g *gathering) enough(err error) error {
	if errors.Is(err, errEnough) {
		g.satisfied = true
		return nil
	}
	return err
}

// look does one round. It bears with an API server that is away for a while.
func (g *gathering) look(ctx context.Context, now time.Time) (done bool, err error) {
	if g.answered.IsZero() {
		g.answered = now
	}
	done, err = g.round(ctx, now)
	switch {
	case err == nil:
		g.answered = now
		return done, nil
	case errors.Is(err, errEnough) || lasting(err) != nil || ctx.Err() != nil:
		return false, err
	case now.Sub(g.answered) > silenceMax:
		return false, fmt.Errorf("the API server did not answer for %s: %w", silenceMax, err)
	case now.Sub(g.told) >= statusInterval:
		g.told = now
		fmt.Fprintf(g.options.Progress, "trying on, the fleet goes on without us: %v\n", err)
	}
	return false, nil
}

func (g *gathering) round(ctx context.Context, now time.Time) (done bool, err error) {
	job, err := g.core.BatchV1().Jobs(g.namespace).Get(ctx, g.job, metav1.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("reading the Job: %w", err)
	}
	ended := g.endedShards(job)
	if hasEnded(job) {
		ended = g.options.Shards // also what a pod stored that did not live to say so
	}
	if err := g.collect(ctx, ended); err != nil {
		return false, err
	}
	if len(g.left) == 0 {
		return true, nil
	}
	if !hasEnded(job) && now.Sub(g.told) < statusInterval {
		return false, nil
	}
	g.told = now
	pods, err := g.core.CoreV1().Pods(g.namespace).List(ctx, metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + g.job})
	if err != nil {
		return false, fmt.Errorf("listing pods: %w", err)
	}
	if hasEnded(job) || g.isHopeless(pods.Items, now) {
		g.lost = g.reasons(job, pods.Items)
		return true, nil
	}
	g.tell(ctx, pods.Items)
	return false, nil
}

// collect hands over the results of the shards that have one and were not
// handed over.
func (g *gathering) collect(ctx context.Context, shards []string) error {
	for _, shard := range shards {
		if !g.left[shard] {
			continue
		}
		data, ok, err := g.result(ctx, shard)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		delete(g.left, shard)
		more, err := g.sink.Took(shard, data)
		if err != nil {
			return fmt.Errorf("keeping the result of shard %s: %w", shard, err)
		}
		if !more {
			return errEnough
		}
	}
	return nil
}

// endedShards returns the shards whose index has completed or failed for good.
func (g *gathering) endedShards(job *batchv1.Job) []string {
	var ended []string
	for _, index := range slices.Concat(parseIndexes(job.Status.CompletedIndexes), parseIndexes(ptr.Deref(job.Status.FailedIndexes, ""))) {
		if index < len(g.shards) {
			ended = append(ended, g.shards[index])
		}
	}
	return ended
}

// parseIndexes reads a list as Jobs have it: "1,3-5,7".
func parseIndexes(list string) []int {
	var out []int
	for _, part := range strings.Split(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		first, err := strconv.Atoi(from)
		if err != nil {
			continue
		}
		last := first
		if isRange {
			if last, err = strconv.Atoi(to); err != nil {
				continue
			}
		}
		for i := first; i <= last; i++ {
			out = append(out, i)
		}
	}
	return out
}

func (g *gathering) tell(ctx context.Context, pods []corev1.Pod) {
	if g.sink.Told == nil {
		return
	}
	s := Status{All: len(g.options.Shards), Gathered: len(g.options.Shards) - len(g.left), Words: map[string]string{}, Waiting: map[string]int{}}
	missing := len(g.left)
	for i := range pods {
		p := &pods[i]
		shard, ok := g.shardOf(p)
		if !ok || !g.left[shard] || p.DeletionTimestamp != nil {
			continue
		}
		switch p.Status.Phase {
		case corev1.PodPending:
			s.Waiting[waitingFor(p)]++
			missing--
		case corev1.PodRunning:
			s.Words[shard] = g.lastWords(ctx, p)
			missing--
		case corev1.PodSucceeded: // its result is about to be collected
			missing--
		}
	}
	if missing > 0 {
		// A quota, an admission, or the pause before another attempt.
		s.Waiting[notMade] = missing
	}
	g.sink.Told(s)
}

// notMade is what shards wait for that have no pod now.
const notMade = "NotMade"

// shardOf tells which shard a pod does.
func (g *gathering) shardOf(p *corev1.Pod) (string, bool) {
	index, err := strconv.Atoi(p.Annotations[batchv1.JobCompletionIndexAnnotation])
	if err != nil || index < 0 || index >= len(g.shards) {
		return "", false
	}
	return g.shards[index], true
}

// lastWords returns the last line that a pod wrote, or nothing: not every
// cluster shows logs, and progress is not worth an error.
func (g *gathering) lastWords(ctx context.Context, p *corev1.Pod) string {
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	stream, err := g.core.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{TailLines: ptr.To(int64(1))}).Stream(ctx)
	if err != nil {
		return ""
	}
	defer stream.Close()
	line, err := bufio.NewReader(stream).ReadString('\n')
	if err != nil {
		return "" // half a line tells nothing
	}
	return strings.TrimSpace(line)
}

// waitingFor says why a pod does not run yet.
func waitingFor(p *corev1.Pod) string {
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Waiting != nil && c.State.Waiting.Reason != "" {
			return c.State.Waiting.Reason
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Reason
		}
	}
	return "Pending"
}

// hopelessReasons are those that no waiting cures, whatever Kubernetes tries.
var hopelessReasons = []string{"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError", "CreateContainerError"}

// isHopeless tells whether all pods that are left have waited for too long for
// something that does not come.
func (g *gathering) isHopeless(pods []corev1.Pod, now time.Time) bool {
	waiting := 0
	for i := range pods {
		p := &pods[i]
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		if !slices.Contains(hopelessReasons, waitingFor(p)) {
			g.hopeless = time.Time{}
			return false
		}
		waiting++
	}
	if waiting == 0 {
		g.hopeless = time.Time{}
		return false
	}
	if g.hopeless.IsZero() {
		g.hopeless = now
	}
	return now.Sub(g.hopeless) >= hopelessMax
}

// reasons says of each shard without result why it has none.
func (g *gathering) reasons(job *batchv1.Job, pods []corev1.Pod) map[string]string {
	slices.SortFunc(pods, func(a, b corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	unless := "its pods are gone"
	if c := ending(job); c != nil && c.Type == batchv1.JobFailed && c.Reason == batchv1.JobReasonDeadlineExceeded {
		unless = "the Job's time was over"
	}
	lost := map[string]string{}
	for shard := range g.left {
		lost[shard] = unless
	}
	for i := range pods {
		if shard, ok := g.shardOf(&pods[i]); ok && g.left[shard] {
			lost[shard] = fateOf(&pods[i]) // the last pod's counts
		}
	}
	return lost
}

// fateOf says how a pod ended, in a line.
func fateOf(p *corev1.Pod) string {
	for _, c := range p.Status.ContainerStatuses {
		if t := c.State.Terminated; t != nil {
			fate := fmt.Sprintf("exit code %d", t.ExitCode)
			if t.Reason != "" && t.Reason != "Error" {
				fate += ", " + t.Reason
			}
			if words := lastLine(t.Message); words != "" {
				fate += ": " + words
			}
			return fate
		}
		if w := c.State.Waiting; w != nil && w.Reason != "" {
			return strings.TrimSuffix(w.Reason+": "+lastLine(w.Message), ": ")
		}
	}
	return strings.TrimSuffix(cmp.Or(p.Status.Reason, string(p.Status.Phase))+": "+lastLine(p.Status.Message), ": ")
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndex(text, "\n")+1:]
}
