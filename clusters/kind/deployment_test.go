package kind

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/deploy"
)

func TestTheDeploymentIsThatOfTheManifestsWithOurImageAndFlags(t *testing.T) {
	objects, err := deploy.Objects(danm.GroupDanmIO)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, o := range objects {
		if err := adapt(o, "img:1", []string{"--release-quarantine", "1s"}, onControlPlane); err != nil {
			t.Fatal(err)
		}
		if o.GetKind() != "Deployment" {
			continue
		}
		found++
		var d appsv1.Deployment
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &d); err != nil {
			t.Fatal(err)
		}
		pod := d.Spec.Template.Spec
		if d.Namespace != cleanerNamespace || d.Name != cleanerName || *d.Spec.Replicas != 2 {
			t.Errorf("%d replicas of %s/%s", *d.Spec.Replicas, d.Namespace, d.Name)
		}
		if c := pod.Containers[0]; c.Image != "img:1" || c.ImagePullPolicy != corev1.PullNever || !slices.Equal(c.Args[len(c.Args)-2:], []string{"--release-quarantine", "1s"}) || c.Args[0] != "run" {
			t.Errorf("container %+v", c)
		}
		if _, ok := pod.NodeSelector[controlPlaneLabel]; !ok {
			t.Errorf("the pods may be on a node that is failed: %v", pod.NodeSelector)
		}
	}
	if found != 1 {
		t.Errorf("%d Deployments", found)
	}
}

func podWith(status corev1.ContainerStatus) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: cleanerNamespace, Labels: map[string]string{"app": "danm-cleaner"}},
		Status:     corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{status}},
	}
}

func TestOnlyWhatEndsByItselfCountsAsEnded(t *testing.T) {
	ended := &corev1.ContainerStateTerminated{ExitCode: 2, Reason: "Error"}
	now := metav1.Now()
	tests := []struct {
		name string
		give corev1.ContainerStatus
		gone bool
		want string
	}{
		{"it runs", corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}, false, ""},
		{"it ended", corev1.ContainerStatus{State: corev1.ContainerState{Terminated: ended}}, false, "with exit code 2 (Error)"},
		{"it runs again", corev1.ContainerStatus{LastTerminationState: corev1.ContainerState{Terminated: ended}}, false, "with exit code 2 (Error)"},
		{"the API took it away", corev1.ContainerStatus{State: corev1.ContainerState{Terminated: ended}}, true, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			pod := podWith(test.give)
			if test.gone {
				pod.DeletionTimestamp = &now
			}
			if got := endOf(pod); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestADeploymentThatEndsIsNoticedAndTakenAway(t *testing.T) {
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: cleanerName, Namespace: cleanerNamespace}}
	pod := podWith(corev1.ContainerStatus{LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error"}}})
	pod.Status.Phase = corev1.PodRunning
	client := fake.NewClientset(deployment, pod)
	var logs bytes.Buffer
	d := watchDeployment(client, &logs)
	select {
	case <-d.Exited():
	case <-time.After(stepMax):
		t.Fatal("nobody noticed")
	}
	if err := d.ExitError(); err == nil || err.Error() != "pod p ended with exit code 1 (Error)" {
		t.Errorf("error %v", err)
	}
	if err := d.Kill(context.Background()); err != nil {
		t.Fatal(err)
	}
	left, err := client.AppsV1().Deployments("").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(left.Items) > 0 {
		t.Errorf("left: %v, error %v", left.Items, err)
	}
	if !strings.HasPrefix(logs.String(), "p fake logs") {
		t.Errorf("logs %q", logs.String())
	}
}
