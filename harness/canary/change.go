package canary

import (
	"net/http"
	"time"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

// Change is what a canary changes of the cleaner that ships, by what that
// cleaner offers everybody: its configuration and its way to the API. Nothing
// in the cleaner knows of it.
type Change struct {
	// ReleaseQuarantine, OrphanQuarantine and CompletedAllowance replace those
	// of the configuration, unless they are zero.
	ReleaseQuarantine, OrphanQuarantine, CompletedAllowance time.Duration
	// Writes makes it write in a dry run, too.
	Writes bool
	// Wrap is put between the cleaner and the API; nil changes nothing there.
	Wrap func(http.RoundTripper) http.RoundTripper
}

// change builds the change of one copy of a cleaner that works on the group.
// Copies share nothing.
type change func(danm.Group) Change

// ChangeOf returns what the canary changes of the cleaner that ships. It is
// false for a canary that is a cleaner of its own, which Run runs.
func ChangeOf(name string, g danm.Group) (Change, bool) {
	c, ok := registry()[name]
	if !ok || c.change == nil {
		return Change{}, false
	}
	return c.change(g), true
}

// neverAgain is longer than any run.
const neverAgain = 1000 * time.Hour

// hasty clears bits without endpoint long before an ADD has ended.
func hasty(danm.Group) Change { return Change{OrphanQuarantine: time.Second} }

func neverSweeping(danm.Group) Change { return Change{OrphanQuarantine: neverAgain} }

func loud(danm.Group) Change { return Change{Writes: true} }

// wrapped is a change of the way to the API alone.
func wrapped(d func(danm.Group) defect) change {
	return func(g danm.Group) Change {
		broken := d(g)
		return Change{Wrap: func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				return broken(exchange{request: r, meaning: meaningOf(r), next: next})
			})
		}}
	}
}
