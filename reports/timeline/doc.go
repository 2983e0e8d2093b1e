// Package timeline turns a history into what a person can follow: how many
// pods, DanmEps and allocated bits there were at each moment, what was broken
// when, who released what, and the story behind one violation. It judges
// nothing: a curve that looks wrong is no verdict.
package timeline
