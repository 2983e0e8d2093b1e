package cleaner

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

// listWatch returns a list-watch of a whole resource in all namespaces.
func listWatch(r dynamic.ResourceInterface) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return r.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return r.Watch(ctx, o)
		},
	}
}

// coreListWatch returns a list-watch of one of Kubernetes' own resources, in all
// namespaces.
func coreListWatch(api rest.Interface, path string) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return danm.WithOptions(api.Get().AbsPath(path), o).Do(ctx).Get()
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			return danm.WithOptions(api.Get().AbsPath(path), o).Watch(ctx)
		},
	}
}

// networkListWatch is a list-watch that shows everything to the lineage before
// the informer gets it. Lists, and watches that begin with the present state,
// break the lineage off: nobody saw what happened before them.
func networkListWatch(r dynamic.ResourceInterface, kind danm.NetworkKind, l *lineage) *cache.ListWatch {
	plain := listWatch(r)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			l.breakOff(kind)
			list, err := r.List(ctx, o)
			if err != nil {
				return nil, err
			}
			for i := range list.Items {
				show(l, kind, watch.Added, &list.Items[i])
			}
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if o.SendInitialEvents != nil && *o.SendInitialEvents {
				l.breakOff(kind)
			}
			source, err := plain.WatchFuncWithContext(ctx, o)
			if err != nil {
				return nil, err
			}
			return tap(source, func(e watch.Event) {
				if u, ok := e.Object.(*unstructured.Unstructured); ok {
					show(l, kind, e.Type, u)
				}
			}), nil
		},
	}
}

func show(l *lineage, kind danm.NetworkKind, event watch.EventType, u *unstructured.Unstructured) {
	ref := danm.NetworkRef{Kind: kind, Namespace: u.GetNamespace(), Name: u.GetName()}
	switch event {
	case watch.Added, watch.Modified:
		n, err := danm.ToNetwork(u)
		if err != nil {
			l.forget(ref)
			return
		}
		n.Kind = string(kind) // items of a list may come without it
		l.observe(n)
	case watch.Deleted:
		l.forget(ref)
	}
}

// tappedWatch passes the events of a watch on after showing them to see. Unlike
// watch.Filter it ends when it is stopped, whether or not anybody still reads.
type tappedWatch struct {
	source watch.Interface
	events chan watch.Event
	done   chan struct{}
	stop   sync.Once
}

func tap(source watch.Interface, see func(watch.Event)) *tappedWatch {
	t := &tappedWatch{source: source, events: make(chan watch.Event), done: make(chan struct{})}
	go t.run(see)
	return t
}

func (t *tappedWatch) run(see func(watch.Event)) {
	defer close(t.events)
	for e := range t.source.ResultChan() {
		see(e)
		select {
		case t.events <- e:
		case <-t.done:
			return
		}
	}
}

// Stop ends the watch. It may be called more than once.
func (t *tappedWatch) Stop() {
	t.stop.Do(func() { close(t.done) })
	t.source.Stop()
}

// ResultChan returns the events; it is closed at the end.
func (t *tappedWatch) ResultChan() <-chan watch.Event { return t.events }
