package cleaner

import "github.com/danm-chaos/danm-chaos/cleaner/danm"

// PauseAnnotation on a network makes the cleaner release nothing of it: no
// endpoint, no bit. Living pods are looked after all the same, which includes
// setting their bits again. "false" and no value mean no pause; every other
// value does, because whoever misspells "true" means it.
const PauseAnnotation = "danm-cleaner.danm.io/pause"

func isPaused(n *danm.Network) bool {
	value := n.Annotations[PauseAnnotation]
	return value != "" && value != "false"
}

// isPausedNetwork tells what the cache knows of a pause. That may be a moment
// old, as the annotation itself may be set a moment after a release.
func (c *controller) isPausedNetwork(ref danm.NetworkRef) bool {
	n, ok := c.caches.network(ref)
	return ok && isPaused(n)
}

// reportPause says once when a pause begins and when it ends; before may be nil.
func (c *controller) reportPause(before, after *danm.Network) {
	was := before != nil && isPaused(before)
	switch now := isPaused(after); {
	case now && !was:
		c.log.Info("network is paused, nothing of it is released", "network", after.Ref().String(), "annotation", PauseAnnotation)
	case was && !now:
		c.log.Info("network is no longer paused", "network", after.Ref().String())
		c.enqueue(c.caches.endpointsBy(byNetwork, after.Ref().String()))
	}
}
