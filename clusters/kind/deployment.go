package kind

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"

	"github.com/danm-chaos/danm-chaos/cleaner/deploy"
	"github.com/danm-chaos/danm-chaos/clusters"
)

// What the manifests call things.
const (
	cleanerNamespace = "danm-cleaner"
	cleanerName      = "danm-cleaner"
	cleanerSelector  = "app=danm-cleaner"
)

const (
	// deployTimeout bounds the wait for all replicas to be Ready.
	deployTimeout = 2 * time.Minute
	// watchInterval is how often the pods of the cleaner are looked at.
	watchInterval = 500 * time.Millisecond
)

// deployment is a cleaner that runs as users run it: two replicas in pods,
// under the rights of the manifests.
type deployment struct {
	client kubernetes.Interface
	logs   *lineWriter
	cancel context.CancelFunc
	work   sync.WaitGroup

	once   sync.Once
	exited chan struct{}
	err    error // how it ended, valid once exited is closed
}

var (
	_ clusters.CleanerProcess   = (*deployment)(nil)
	_ clusters.CleanerPodLister = (*Cluster)(nil)
)

// CleanerPods implements clusters.CleanerPodLister. A cleaner that is no
// Deployment has none.
func (c *Cluster) CleanerPods(ctx context.Context) ([]clusters.CleanerPod, error) {
	return clusters.ListCleanerPods(ctx, c.client, cleanerNamespace, cleanerSelector)
}

// placement says on which nodes the cleaner's pods may be.
type placement func(*corev1.PodSpec)

// onControlPlane keeps the cleaner where no node is failed. Else a run would
// measure the time that a Lease takes to run out, now and then.
func onControlPlane(s *corev1.PodSpec) {
	s.NodeSelector = map[string]string{controlPlaneLabel: ""}
}

// deployCleaner returns when all replicas are Ready.
func (c *Cluster) deployCleaner(ctx context.Context, s clusters.CleanerSpec, place placement) (*deployment, error) {
	if len(s.Argv) == 0 {
		return nil, errors.New("deploying the cleaner: no program given")
	}
	if err := c.loadCleaner(ctx, s.Argv[0]); err != nil {
		return nil, fmt.Errorf("deploying the cleaner: %w", err)
	}
	if err := c.applyCleaner(ctx, s.Argv[1:], place); err != nil {
		return nil, fmt.Errorf("deploying the cleaner: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, deployTimeout, fmt.Errorf("its pods are not Ready after %s", deployTimeout))
	defer cancel()
	if err := c.awaitDeployed(ctx); err != nil {
		return nil, fmt.Errorf("deploying the cleaner: %w", err)
	}
	d := watchDeployment(c.client, s.Logs)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deployments = append(c.deployments, d)
	return d, nil
}

// applyCleaner creates what users apply, with the image that the nodes have.
func (c *Cluster) applyCleaner(ctx context.Context, args []string, place placement) error {
	objects, err := deploy.Objects(c.options.Group)
	if err != nil {
		return err
	}
	config, err := c.RESTConfig(clusters.UserHarness)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.client.Discovery()))
	for _, o := range objects {
		if err := adapt(o, cleanerImage(c.data.Cluster), args, place); err != nil {
			return err
		}
		kind := o.GroupVersionKind()
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return fmt.Errorf("finding the resource of %s: %w", o.GetKind(), err)
		}
		_, err = client.Resource(mapping.Resource).Namespace(o.GetNamespace()).Create(ctx, o, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

// adapt makes the manifests' Deployment ours. Later flags win over earlier.
func adapt(o *unstructured.Unstructured, image string, args []string, place placement) error {
	if o.GetKind() != "Deployment" {
		return nil
	}
	var d appsv1.Deployment
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &d); err != nil {
		return fmt.Errorf("reading the Deployment: %w", err)
	}
	place(&d.Spec.Template.Spec)
	container := &d.Spec.Template.Spec.Containers[0]
	container.Image, container.ImagePullPolicy = image, corev1.PullNever
	container.Args = append(container.Args, args...)
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&d)
	if err != nil {
		return fmt.Errorf("writing the Deployment: %w", err)
	}
	o.Object = object
	return nil
}

func (c *Cluster) awaitDeployed(ctx context.Context) error {
	var ready, wanted int32
	err := poll(ctx, func(ctx context.Context) (bool, error) {
		d, err := c.client.AppsV1().Deployments(cleanerNamespace).Get(ctx, cleanerName, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		ready, wanted = d.Status.ReadyReplicas, *d.Spec.Replicas
		return ready == wanted, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %d of %d pods to be Ready: %w", ready, wanted, err)
	}
	return nil
}

// watchDeployment takes the logs of all replicas, and notices when one ended by
// itself.
func watchDeployment(client kubernetes.Interface, logs io.Writer) *deployment {
	if logs == nil {
		logs = io.Discard
	}
	ctx, cancel := context.WithCancel(context.Background())
	d := &deployment{client: client, logs: &lineWriter{out: logs}, cancel: cancel, exited: make(chan struct{})}
	d.work.Go(func() { d.watch(ctx) })
	return d
}

func (d *deployment) watch(ctx context.Context) {
	followed := map[string]bool{} // by name of the pod
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	for {
		// An API that does not answer says nothing about the cleaner.
		list, err := d.client.CoreV1().Pods(cleanerNamespace).List(ctx, metav1.ListOptions{LabelSelector: cleanerSelector})
		for i := range items(list, err) {
			pod := &list.Items[i]
			if how := endOf(pod); how != "" {
				d.end(fmt.Errorf("pod %s ended %s", pod.Name, how))
			}
			if !followed[pod.Name] && pod.Status.Phase == corev1.PodRunning {
				followed[pod.Name] = true
				d.work.Go(func() { d.follow(ctx, pod.Name) })
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func items(list *corev1.PodList, err error) []corev1.Pod {
	if err != nil {
		return nil
	}
	return list.Items
}

// endOf says how a container of the pod ended by itself, or nothing. Those that
// the API takes away are not its fault.
func endOf(pod *corev1.Pod) string {
	if pod.DeletionTimestamp != nil {
		return ""
	}
	for _, s := range pod.Status.ContainerStatuses {
		for _, ended := range []*corev1.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated} {
			if ended != nil {
				return fmt.Sprintf("with exit code %d (%s)", ended.ExitCode, ended.Reason)
			}
		}
	}
	return ""
}

// follow copies the log of a pod until the pod or ctx ends.
func (d *deployment) follow(ctx context.Context, pod string) {
	stream, err := d.client.CoreV1().Pods(cleanerNamespace).GetLogs(pod, &corev1.PodLogOptions{Follow: true}).Stream(ctx)
	if err != nil {
		d.logs.write(pod, fmt.Sprintf("its log cannot be followed: %v", err))
		return
	}
	defer stream.Close()
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, logLineBytesMax)
	for lines.Scan() {
		d.logs.write(pod, lines.Text())
	}
	if err := lines.Err(); err != nil && ctx.Err() == nil {
		d.logs.write(pod, fmt.Sprintf("the rest of its log is lost: %v", err))
	}
}

// logLineBytesMax bounds a line of a cleaner's log.
const logLineBytesMax = 1 << 20

func (d *deployment) end(err error) {
	d.once.Do(func() {
		d.err = err
		close(d.exited)
	})
}

// Exited implements clusters.CleanerProcess.
func (d *deployment) Exited() <-chan struct{} { return d.exited }

// ExitError implements clusters.CleanerProcess.
func (d *deployment) ExitError() error {
	select {
	case <-d.exited:
		return d.err
	default:
		return nil
	}
}

// Stop implements clusters.CleanerProcess.
func (d *deployment) Stop(ctx context.Context) error { return d.remove(ctx, nil) }

// Kill implements clusters.CleanerProcess.
func (d *deployment) Kill(ctx context.Context) error { return d.remove(ctx, new(int64)) }

// remove deletes the Deployment and waits until its pods are gone. The rights
// stay: without pods nobody uses them.
func (d *deployment) remove(ctx context.Context, grace *int64) error {
	background := metav1.DeletePropagationBackground
	err := d.client.AppsV1().Deployments(cleanerNamespace).Delete(ctx, cleanerName, metav1.DeleteOptions{PropagationPolicy: &background})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting the cleaner's Deployment: %w", err)
	}
	if err := poll(ctx, func(ctx context.Context) (bool, error) { return d.removePods(ctx, grace) }); err != nil {
		return fmt.Errorf("waiting for the cleaner's pods to be gone: %w", err)
	}
	d.leave()
	return nil
}

// removePods tells whether there are none, and hurries those that there are if
// it is to.
func (d *deployment) removePods(ctx context.Context, grace *int64) (gone bool, err error) {
	list, err := d.client.CoreV1().Pods(cleanerNamespace).List(ctx, metav1.ListOptions{LabelSelector: cleanerSelector})
	if err != nil || len(list.Items) == 0 || grace == nil {
		return err == nil && len(list.Items) == 0, err
	}
	for _, pod := range list.Items {
		err := d.client.CoreV1().Pods(cleanerNamespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: grace})
		if err != nil && !apierrors.IsNotFound(err) {
			return false, err
		}
	}
	return false, nil
}

// leave ends what this program does for the deployment, which may run on.
func (d *deployment) leave() {
	d.cancel()
	d.work.Wait()
	d.end(nil)
}

// lineWriter writes the lines of several pods to one place.
type lineWriter struct {
	mu  sync.Mutex
	out io.Writer
}

func (w *lineWriter) write(pod, line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := fmt.Fprintf(w.out, "%s %s\n", pod, line); err != nil {
		fmt.Fprintf(os.Stderr, "writing the cleaner's log: %v\n", err)
	}
}
