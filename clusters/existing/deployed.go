package existing

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What danm-cleaner waits if its arguments do not say otherwise.
const (
	releaseQuarantineDefault = time.Minute
	orphanQuarantineDefault  = 5 * time.Minute
)

// Deployed is the cleaner that runs in the cluster.
type Deployed struct {
	Namespace, Name string
	Image, Version  string
	Replicas, Ready int32
	Selector        string
	Managers        []string // field managers that it writes as
	// Quarantines are how long it waits before it releases, by its arguments.
	ReleaseQuarantine, OrphanQuarantine time.Duration
}

func (d Deployed) String() string {
	return fmt.Sprintf("%s/%s, image %s, version %s, %d of %d replicas ready", d.Namespace, d.Name, d.Image, d.Version, d.Ready, d.Replicas)
}

// findCleaner returns the Deployment under test.
func (a access) findCleaner(ctx context.Context, o Options) (Deployed, error) {
	list, err := a.core.AppsV1().Deployments("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return Deployed{}, err
	}
	var found []Deployed
	for i := range list.Items {
		d := &list.Items[i]
		named := o.Cleaner == d.Namespace+"/"+d.Name
		if named || o.Cleaner == "" && looksLikeCleaner(d) {
			found = append(found, describe(d, o))
		}
	}
	slices.SortFunc(found, func(a, b Deployed) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	switch {
	case len(found) == 1:
		return found[0], nil
	case o.Cleaner != "":
		return Deployed{}, fmt.Errorf("there is no Deployment %s", o.Cleaner)
	case len(found) == 0:
		return Deployed{}, fmt.Errorf("no Deployment looks like a cleaner of DANM")
	}
	var names []string
	for _, d := range found {
		names = append(names, d.Namespace+"/"+d.Name)
	}
	return Deployed{}, fmt.Errorf("several Deployments look like cleaners: %s", strings.Join(names, ", "))
}

// looksLikeCleaner goes by the names that DANM's users give it.
func looksLikeCleaner(d *appsv1.Deployment) bool {
	if strings.Contains(d.Name, "cleaner") && (strings.Contains(d.Name, "danm") || strings.Contains(d.Namespace, "danm") || d.Namespace == metav1.NamespaceSystem) {
		return true
	}
	return slices.ContainsFunc(d.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
		return strings.Contains(imageName(c.Image), "cleaner") && strings.Contains(c.Image, "danm")
	})
}

func describe(d *appsv1.Deployment, o Options) Deployed {
	out := Deployed{
		Namespace: d.Namespace, Name: d.Name, Replicas: 1, Ready: d.Status.ReadyReplicas,
		Selector: metav1.FormatLabelSelector(d.Spec.Selector), Version: "unknown",
		ReleaseQuarantine: releaseQuarantineDefault, OrphanQuarantine: orphanQuarantineDefault,
	}
	if d.Spec.Replicas != nil {
		out.Replicas = *d.Spec.Replicas
	}
	out.Managers = slices.Clone(o.CleanerManagers)
	if containers := d.Spec.Template.Spec.Containers; len(containers) > 0 {
		c := containers[0]
		out.Image = c.Image
		named, _, _ := strings.Cut(path.Base(c.Image), "@") // a digest is no version
		if _, tag, ok := strings.Cut(named, ":"); ok {
			out.Version = tag
		}
		// client-go names a program's writes after its file, which images and
		// containers are mostly named after.
		out.Managers = append(out.Managers, imageName(c.Image), c.Name)
		if len(c.Command) > 0 {
			out.Managers = append(out.Managers, path.Base(c.Command[0]))
		}
		args := slices.Concat(c.Command, c.Args)
		out.ReleaseQuarantine = durationOf(args, "--release-quarantine", out.ReleaseQuarantine)
		out.OrphanQuarantine = durationOf(args, "--orphan-quarantine", out.OrphanQuarantine)
	}
	slices.Sort(out.Managers)
	out.Managers = slices.Compact(out.Managers)
	return out
}

func imageName(image string) string {
	name, _, _ := strings.Cut(path.Base(image), ":")
	name, _, _ = strings.Cut(name, "@")
	return name
}

// durationOf reads a flag in either spelling.
func durationOf(args []string, flag string, unless time.Duration) time.Duration {
	for i, arg := range args {
		value, ok := strings.CutPrefix(arg, flag+"=")
		if arg == flag && i+1 < len(args) {
			value, ok = args[i+1], true
		}
		if !ok {
			continue
		}
		if d, err := time.ParseDuration(value); err == nil {
			return d
		}
	}
	return unless
}
