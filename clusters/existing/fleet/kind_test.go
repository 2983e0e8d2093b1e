package fleet_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/clusters/controlplane"
	"github.com/danm-chaos/danm-chaos/clusters/danmcni"
	"github.com/danm-chaos/danm-chaos/clusters/kind"
	"github.com/danm-chaos/danm-chaos/clusters/kind/engine"
)

const (
	// integration is set where there is an engine whose containers a test may
	// make and remove.
	integration = "DANM_KIND_TEST"
	kindSeeds   = "1-1200"
)

// The whole of a fleet as users have it: image, nodes, pods, logs.
func TestOnRealNodes(t *testing.T) {
	if os.Getenv(integration) == "" {
		t.Skipf("needs a container engine and a node image; set %s=1", integration)
	}
	build(t)
	cluster := &world{t: t, folder: t.TempDir(), alone: new(string)}
	nodes := cluster.startKind()
	image := cluster.loadImage()
	for _, tt := range []struct {
		name string
		test func(*world)
	}{
		{"an interrupted fleet leaves nothing", func(w *world) { w.interruptOnNodes(image) }},
		{"a pod that is deleted in the middle changes nothing", func(w *world) { w.deleteOnePod(image) }},
		{"a node that is lost in the middle changes nothing", func(w *world) { w.loseOneNode(image, nodes) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := *cluster
			w.t, w.folder = t, t.TempDir()
			tt.test(&w)
		})
	}
}

// onNodes is the fleet that both tests have.
func (w *world) onNodes(image string) *chaos {
	w.t.Helper()
	c := w.chaos("fleet", "--kubeconfig", w.kubeconfig, "--context", w.context(), "--image", image, "--seeds", kindSeeds, "--shards", "4", "--yes")
	if err := c.Start(); err != nil {
		w.t.Fatal(err)
	}
	return c
}

func (w *world) deleteOnePod(image string) {
	t := w.t
	seen := w.watchPods()
	began := time.Now()
	c := w.onNodes(image)
	index := w.awaitPlaying(seen)
	w.deletePod(t.Context(), index)
	code, text := c.ends(t)
	t.Logf("fleet of 4 shards: %.1f s", time.Since(began).Seconds())
	seen.end()
	if code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if pods := seen.of(index); len(pods) != 2 {
		t.Errorf("the shard whose pod was deleted had pods %v, want two", pods)
	}
	w.expectNothingLeft()
	w.expectLikeOneProcess(text)
}

// expectLikeOneProcess compares with one process, which plays but once.
func (w *world) expectLikeOneProcess(text string) {
	t := w.t
	t.Helper()
	if *w.alone == "" {
		began := time.Now()
		_, alone := w.chaos("run", "--cluster", "sim", "--seeds", kindSeeds, "--out", "alone").ends(t)
		t.Logf("one process: %.1f s", time.Since(began).Seconds())
		*w.alone = digestIn(t, alone)
	}
	if fleet := digestIn(t, text); fleet != *w.alone {
		t.Errorf("the fleet's digest is %s, that of one process %s", fleet, *w.alone)
	}
}

func (w *world) loseOneNode(image string, nodes *kind.Cluster) {
	t := w.t
	seen := w.watchPods()
	began := time.Now()
	c := w.onNodes(image)
	index := w.awaitPlaying(seen)
	node := w.podOf(index).Spec.NodeName
	if err := nodes.FailNode(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	code, text := c.ends(t)
	t.Logf("fleet of 4 shards, one node lost: %.1f s", time.Since(began).Seconds())
	seen.end()
	if code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if pods := seen.of(index); len(pods) < 2 {
		t.Errorf("the shard whose node was lost had pods %v, want another", pods)
	}
	w.expectNothingLeft()
	w.expectLikeOneProcess(text)
}

func (w *world) interruptOnNodes(image string) {
	t := w.t
	seen := w.watchPods()
	c := w.onNodes(image)
	w.awaitPlaying(seen)
	began := time.Now()
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	code, text := c.ends(t)
	t.Logf("from Ctrl-C to the end: %.1f s", time.Since(began).Seconds())
	if code != 2 || !strings.Contains(text, "of 1200 seeds") || !slices.Contains(reproduce(text), "--resume") {
		t.Errorf("exit code %d, want 2 and how to go on", code)
	}
	w.expectNothingLeft()
}

func (w *world) startKind() *kind.Cluster {
	t := w.t
	t.Helper()
	began := time.Now()
	c, err := kind.Start(t.Context(), kind.Options{
		RunID: fmt.Sprintf("fleet-test-%d", os.Getpid()), Group: danm.GroupDanmIO, Workers: 2, CNI: danmcni.Danm43, Progress: os.Stderr,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	t.Logf("cluster: %.1f s", time.Since(began).Seconds())
	w.kubeconfig = c.Kubeconfig()
	if w.config, err = c.RESTConfig(clusters.UserHarness); err != nil {
		t.Fatal(err)
	}
	w.core = kubernetes.NewForConfigOrDie(w.config)
	return c
}

func (w *world) context() string {
	w.t.Helper()
	config, err := clientcmd.LoadFromFile(w.kubeconfig)
	if err != nil {
		w.t.Fatal(err)
	}
	return config.CurrentContext
}

// loadImage builds the image as users do and gives it to the nodes, which have
// no registry.
func (w *world) loadImage() string {
	t := w.t
	t.Helper()
	began := time.Now()
	image := fmt.Sprintf("danm-chaos/fleet-test:%d", os.Getpid())
	archive := filepath.Join(w.folder, "image.tar")
	// An old builder makes the cleaner's image on the way, which has to have a
	// name to be found and removed by.
	folder := w.buildContext()
	for target, name := range map[string]string{"prebuilt": image + "-cleaner", "danm-chaos": image} {
		engineDoes(t, "build", "--quiet", "--target", target, "--tag", name, folder)
		t.Cleanup(func() {
			if _, err := engine.Run(context.Background(), "rmi", "--force", name); err != nil {
				t.Error(err)
			}
		})
	}
	engineDoes(t, "save", "--output", archive, image)
	data, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := w.core.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: "!node-role.kubernetes.io/control-plane"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range nodes.Items {
		_, err := engine.RunInput(t.Context(), bytes.NewReader(data),
			"exec", "--interactive", nodes.Items[i].Name, "ctr", "--namespace", "k8s.io", "images", "import", "--all-platforms", "-")
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("image of %d MiB on %d nodes: %.1f s", len(data)>>20, len(nodes.Items), time.Since(began).Seconds())
	return image
}

func engineDoes(t *testing.T, args ...string) {
	t.Helper()
	if _, err := engine.Run(t.Context(), args...); err != nil {
		t.Fatal(err)
	}
}

// buildContext is a folder with what the Dockerfile takes and nothing else. For
// the cleaner's image any file will do.
func (w *world) buildContext() string {
	w.t.Helper()
	root, err := controlplane.ProjectRoot()
	if err != nil {
		w.t.Fatal(err)
	}
	folder := filepath.Join(w.folder, "image")
	if err := os.MkdirAll(filepath.Join(folder, "bin"), 0o755); err != nil {
		w.t.Fatal(err)
	}
	for to, from := range map[string]string{"Dockerfile": filepath.Join(root, "Dockerfile"), "bin/danm-chaos": program, "bin/danm-cleaner": filepath.Join(root, "LICENSE")} {
		data, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, to), data, 0o755)
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
	return folder
}

// pods are those of a fleet that were ever seen, and the indexes of those that
// told how far they got.
type pods struct {
	mu      sync.Mutex
	byIndex map[string][]string // names
	playing []string            // indexes
	end     func()
}

func (p *pods) of(index string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.byIndex[index]
}

func (w *world) watchPods() *pods {
	p := &pods{byIndex: map[string][]string{}}
	ctx, cancel := context.WithCancel(w.t.Context())
	var looking sync.WaitGroup
	p.end = func() { cancel(); looking.Wait() }
	w.t.Cleanup(p.end)
	looking.Go(func() {
		ticker := time.NewTicker(waitInterval)
		defer ticker.Stop()
		for ctx.Err() == nil {
			w.notePods(ctx, p)
			select {
			case <-ctx.Done():
			case <-ticker.C:
			}
		}
	})
	return p
}

func (w *world) notePods(ctx context.Context, p *pods) {
	list, err := w.core.CoreV1().Pods("").List(ctx, metav1.ListOptions{LabelSelector: clusters.FleetLabel})
	if err != nil {
		return // the next look tells more
	}
	for i := range list.Items {
		pod := &list.Items[i]
		index := pod.Labels["batch.kubernetes.io/job-completion-index"]
		p.mu.Lock()
		if !slices.Contains(p.byIndex[index], pod.Name) {
			p.byIndex[index] = append(p.byIndex[index], pod.Name)
		}
		p.mu.Unlock()
		words, err := w.core.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
		if err == nil && strings.Contains(string(words), `"seeds":`) && pod.Status.Phase == corev1.PodRunning {
			p.mu.Lock()
			p.playing = append(p.playing, index)
			p.mu.Unlock()
		}
	}
}

// awaitPlaying returns the index of a shard in its middle.
func (w *world) awaitPlaying(p *pods) (index string) {
	w.t.Helper()
	w.await("a shard to tell how far it got", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.playing) == 0 {
			return false
		}
		index = p.playing[0]
		return true
	})
	return index
}
