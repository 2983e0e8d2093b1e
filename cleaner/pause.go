package cleaner

import "github.com/danm-chaos/danm-chaos/cleaner/danm"

// isPausedNetwork tells what the cache knows of a pause. That may be a moment
// old, as the annotation itself may be set a moment after a release.
func (c *controller) isPausedNetwork(ref danm.NetworkRef) bool {
	n, ok := c.caches.network(ref)
	return ok && n.IsPaused()
}

// reportPause says once when a pause begins and when it ends; before may be nil.
func (c *controller) reportPause(before, after *danm.Network) {
	was := before != nil && before.IsPaused()
	switch now := after.IsPaused(); {
	case now && !was:
		c.log.Info("network is paused, nothing of it is released", "network", after.Ref().String(), "annotation", danm.PauseAnnotation)
	case was && !now:
		c.log.Info("network is no longer paused", "network", after.Ref().String())
		c.enqueue(c.caches.endpointsBy(byNetwork, after.Ref().String()))
	}
}
